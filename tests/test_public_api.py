"""A change of the public names or signatures shows in review."""

import sys

import public_api


def test_the_list_is_fresh():
    assert sys.modules["public_api"].text() == public_api.PATH.read_text(), (
        "run: python tests/public_api.py --write"
    )
