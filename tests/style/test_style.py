"""The project's files keep its rules. test_rules.py shows that each rule can fail.

usage: test_style.py BUILD_FOLDER [unittest arguments]
"""

import sys
import unittest

import ambient
import cli_docs
import compile_rules
import doc_rules
import layers
import measured_docs
import standard_headers
import type_names
from banned_calls import banned_calls
from text_rules import RULES
from tree import CODE, files, read

TEXT = CODE | {".md", ".txt", ".json", ".in", ""}
BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else "build"


class Style(unittest.TestCase):
    def assert_none(self, violations):
        found = list(violations)
        self.assertFalse(found, "\n" + "\n".join(found))

    def check(self, rule):
        self.assert_none(f"{path}:{line}: {what}" for path in files(suffixes=TEXT)
                         if path.name != "LICENSE" for line, what in rule(path, read(path)))

    def test_text(self):
        for rule in RULES:
            with self.subTest(rule.__name__):
                self.check(rule)

    def test_banned_calls(self):
        self.check(banned_calls)

    def test_nothing_is_ambient(self):
        self.check(ambient.host_types)
        self.check(ambient.python_calls)
        self.assert_none(ambient.violations(BUILD))

    def test_layers(self):
        self.assert_none(layers.violations())

    def test_type_names(self):
        self.assert_none(type_names.violations())

    def test_documents(self):
        self.assert_none(doc_rules.violations())

    def test_measured_documents(self):
        self.assert_none(measured_docs.violations())

    def test_format(self):
        self.assert_none(compile_rules.unformatted(compile_rules.sources()))

    def test_headers_compile_alone(self):
        self.assert_none(compile_rules.headers_that_need_others(BUILD))

    def test_precompiled_headers_hide_nothing(self):
        self.assert_none(standard_headers.violations())

    def test_every_command_is_documented(self):
        self.assert_none(cli_docs.violations(BUILD))


if __name__ == "__main__":
    unittest.main(verbosity=2)
