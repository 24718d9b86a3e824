"""The checker of prose, on texts with known findings."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check

IDIOMS = check.read_idioms()


def found(name: str, text: str) -> list[tuple[int, str]]:
    return [(f.line, f.kind) for f in check.findings_of(pathlib.Path(name), text, IDIOMS)]


LONG = " ".join(["word"] * 31) + "."


class Check(unittest.TestCase):
    def test_every_idiom_finds_its_example(self) -> None:
        self.assertGreater(len(IDIOMS), 30)
        for idiom in IDIOMS:
            self.assertTrue(idiom.advice and idiom.pattern.search(idiom.example), idiom)

    def test_comments_and_messages_of_c(self) -> None:
        text = f'int a;  // the run goes on\n/* Bound\n * anew. */\nFail("the ring is gone now, says it");\n// {LONG}\n'
        self.assertEqual(
            found("a.cc", text),
            [(1, "idioms"), (3, "idioms"), (5, "sentences"), (4, "idioms"), (5, "lines")],
        )

    def test_code_in_comments_and_strings_is_none(self) -> None:
        text = '//   x = goes on(y);\nPrint("%x goes on -> there it stands");\nauto s = R"(goes on here and there)";\n'
        self.assertEqual(found("a.cc", text), [])

    def test_docstrings_and_messages_of_python(self) -> None:
        text = '"""A run.\n\nIt goes on.\n"""\n\n# Bound anew.\nraise E("what is queued is dropped by it")\n'
        self.assertEqual(found("a.py", text), [(3, "idioms"), (6, "idioms"), (7, "idioms")])

    def test_markdown(self) -> None:
        text = f"# It goes on\n\nThe `run goes on`, see\n[it](goes-on).\n\n```\nit goes on\n```\n| anew | {LONG} |\n\n- one\n- {LONG}\n"
        self.assertEqual(
            found("a.md", text), [(1, "idioms"), (9, "idioms"), (12, "sentences"), (12, "lines")]
        )

    def test_sentences_end_at_full_stops_only(self) -> None:
        half = " ".join(["word"] * 16)
        self.assertEqual(found("a.md", f"{half}, e.g. {half}\n"), [(1, "sentences"), (1, "lines")])
        self.assertEqual(found("a.md", f"{half}.\n{half}.\n"), [])


if __name__ == "__main__":
    unittest.main()
