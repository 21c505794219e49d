"""Nothing that a message or a name holds acts on the terminal of whoever looks at it."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from server.cli.terminal.screen import Screen, escape, one_line, visible, visible_json

ACTING = [chr(code) for code in range(0xA0) if code < 0x20 or code >= 0x7F]
KEPT = {"\t", "\n"}
TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


#: They look like nothing, or like the end of a line.
UNSEEN = (
    "\u00ad\u061c\u180e\u200b\u200c\u200d\u2028\u2029\u2060\u206f\ufeff\ufff9\U000e0001\U000e0041"
)


def test_what_is_not_seen_is_written_out_and_spaces_are_not() -> None:
    for character in UNSEEN:
        shown = visible(f"a{character}b")
        assert shown.isprintable()
        assert shown != "ab"
        text = visible_json(json.dumps(f"a{character}b", ensure_ascii=False))
        assert text.isprintable()
        assert json.loads(text) == f"a{character}b"
    assert visible("a\u00a0b\u3000c") == "a\u00a0b\u3000c"


def test_every_control_character_is_written_out() -> None:
    for character in [*ACTING, *TURNING]:
        if character not in KEPT:
            assert character not in visible(f"a{character}b")
            assert "\\" in visible(character)
    assert visible("\x1b]0;title\x07") == "\\x1b]0;title\\x07"
    assert visible("größe 中文 😀\tand\nlines") == "größe 中文 😀\tand\nlines"


@given(st.text())
def test_a_line_stays_one_and_says_everything(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable()
    assert one_line("größe 中文 😀") == "größe 中文 😀"
    assert one_line("a\tb\n\x1b[0m") == "a\\tb\\n\\x1b[0m"


@given(st.text())
def test_json_stays_the_same_document(text: str) -> None:
    shown = visible_json(json.dumps({"tag": text}, ensure_ascii=False))
    assert json.loads(shown) == {"tag": text}
    assert not any(character in shown for character in [*ACTING, *TURNING])


@given(st.text(alphabet=st.sampled_from([*ACTING, *TURNING, "[", "]", "b", "/", "\\"])))
def test_what_is_printed_has_no_sequence_of_its_own(text: str) -> None:
    file = io.StringIO()
    Screen(file).print(escape(text), highlight=False)
    assert not any(one in file.getvalue() for one in [*ACTING, *TURNING] if one not in KEPT)
