// A pool of threads for parallel().
//
// Why our own: OpenMP's pool breaks after fork() and is absent from Apple's compiler. A job is a
// function and a count; whoever is free takes the next task from an atomic counter, the caller
// included. Workers spin for some microseconds after a job, since the next one usually follows at
// once, and then sleep. A worker that wakes too late finds the door of its job closed, so a job
// never waits for a sleeper. A forked child starts with no pool and builds its own.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif

#include "runtime.h"

namespace shoestring {

static constexpr auto kPatience = std::chrono::microseconds(50);  // before a worker sleeps
static constexpr int kPauses = 64;                                // between looks at the clock
static constexpr std::uint32_t kClosed = 1u
                                         << 31;  // the door's flag; below it: how many are inside

static inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

static thread_local bool inside_task = false;

namespace {
class Pool {
  public:
    explicit Pool(int count) {
        for (int i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
    }

    ~Pool() {
        {
            std::lock_guard<std::mutex> hold(sleep_);
            stop_ = true;
            ++epoch_;
        }
        wake_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }

    // False if another thread has a job running here: the caller then does its job alone.
    bool run(std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
        if (busy_.exchange(true)) return false;
        tasks_ = tasks, body_ = body, context_ = context;
        next_.store(0, std::memory_order_relaxed);
        door_.fetch_and(~kClosed);
        ++epoch_;
        if (sleepers_ > 0) {
            std::lock_guard<std::mutex> hold(sleep_);
            for (std::int64_t i = 1; i < tasks && i <= sleepers_; ++i) wake_.notify_one();
        }
        take();
        door_.fetch_or(kClosed);
        for (int i = 0; door_.load() != kClosed; ++i) {
            if (i < kPauses) pause();
            else std::this_thread::yield();  // the last task's thread may wait for this core
        }
        busy_ = false;
        return true;
    }

  private:
    void take() {
        inside_task = true;
        for (std::int64_t task; (task = next_.fetch_add(1)) < tasks_;) body_(context_, task);
        inside_task = false;
    }

    void work() {
        for (std::uint64_t seen = 0;;) {
            const auto end = std::chrono::steady_clock::now() + kPatience;
            while (epoch_ == seen && std::chrono::steady_clock::now() < end)
                for (int i = 0; i < kPauses && epoch_ == seen; ++i) pause();
            if (epoch_ == seen) {
                std::unique_lock<std::mutex> hold(sleep_);
                ++sleepers_;
                wake_.wait(hold, [&] { return epoch_ != seen; });
                --sleepers_;
            }
            seen = epoch_;
            if (stop_) return;
            if (!(door_.fetch_add(1) & kClosed)) take();
            door_.fetch_sub(1);
        }
    }

    std::int64_t tasks_ = 0;
    void (*body_)(void*, std::int64_t) = nullptr;
    void* context_ = nullptr;
    alignas(64) std::atomic<std::int64_t> next_{0};
    alignas(64) std::atomic<std::uint32_t> door_{kClosed};
    alignas(64) std::atomic<std::uint64_t> epoch_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<bool> busy_{false}, stop_{false};
    std::mutex sleep_;
    std::condition_variable wake_;
    std::vector<std::thread> workers_;
};

// Cores, not hardware threads, among the processors that this process may use.
int physical_cores() {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        std::set<std::string> cores;
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (!CPU_ISSET(cpu, &allowed)) continue;
            std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                               "/topology/thread_siblings_list");
            std::string siblings;
            cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
        }
        if (!cores.empty()) return static_cast<int>(cores.size());
    }
#endif
    const unsigned found = std::thread::hardware_concurrency();
    return found ? static_cast<int>(found) : 1;
}

struct State {
    explicit State(int threads) : count(threads) {}
    int count;
    std::atomic<Pool*> pool{nullptr};
    std::mutex building;
};
}  // namespace

// Never destroyed: threads may outlive static destructors. A forked child gets a fresh one.
static State* state = nullptr;

static State& get() {
    static const bool once = [] {
        state = new State(physical_cores());
#if !defined(_WIN32)
        pthread_atfork(nullptr, nullptr, [] { state = new State(state->count); });
#endif
        return true;
    }();
    (void)once;
    return *state;
}

int threads() { return get().count; }

void set_threads(int count) {
    if (count < 1)
        throw std::invalid_argument("at least one thread is needed, got " + std::to_string(count));
    State& s = get();
    std::lock_guard<std::mutex> hold(s.building);
    delete s.pool.exchange(nullptr);
    s.count = count;
}

void parallel(std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
    State& s = get();
    if (tasks > 1 && s.count > 1 && !inside_task) {
        Pool* pool = s.pool.load();
        if (!pool) {
            std::lock_guard<std::mutex> hold(s.building);
            pool = s.pool.load();
            if (!pool) s.pool = pool = new Pool(s.count);
        }
        if (pool->run(tasks, body, context)) return;
    }
    const bool before = inside_task;
    inside_task = before || tasks > 1;
    for (std::int64_t task = 0; task < tasks; ++task) body(context, task);
    inside_task = before;
}

}  // namespace shoestring
