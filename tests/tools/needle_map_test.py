#!/usr/bin/env python3
"""tools/needle_map on made-up answers: where a needle is, what counts as found, and heat maps of both."""

import importlib.machinery
import importlib.util
import json
import os
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
_LOADER = importlib.machinery.SourceFileLoader("needle_map", os.path.join(TOOLS, "needle_map"))
needle_map = importlib.util.module_from_spec(importlib.util.spec_from_loader("needle_map", _LOADER))
_LOADER.exec_module(needle_map)

FACT = "The code of the red cup is 1234."


def item(before, behind):
    return {"prompt": "x" * before + FACT + "y" * behind + "\n\nQuestion: What is the code of the red cup?", "answer": FACT}


class NeedleMap(unittest.TestCase):
    def test_depth_is_the_fifth_of_the_text(self):
        for before, behind, depth in ((0, 900, 0), (300, 700, 1), (500, 450, 2), (950, 0, 4), (0, 0, 0)):
            self.assertEqual(needle_map.depth_of(item(before, behind)), depth)
        with self.assertRaises(ValueError):
            needle_map.depth_of({"prompt": "nothing\n\nQuestion: ?", "answer": FACT})

    def test_the_last_word_counts(self):
        one = item(1, 1)
        for given in (FACT, "1234", " 1234. "):
            self.assertTrue(needle_map.found(one, given))
        for given in ("", "The code of the red cup is 1243.", "1234 or 4321", "12345"):
            self.assertFalse(needle_map.found(one, given))

    def test_answers_keep_their_numbers(self):
        def line(number, text, tokens):
            body = {"choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": tokens}}
            return json.dumps({"custom_id": str(number), "response": {"body": body}})
        self.assertEqual(needle_map.answers_of([line(1, "b", 30), line(0, "a", 10)]), ({0: "a", 1: "b"}, 20))
        with self.assertRaises(ValueError):
            needle_map.answers_of(['{"custom_id": "3", "response": {"body": {"error": "too long"}}}'])

    def test_budgets_are_multiples_of_the_share(self):
        self.assertEqual(needle_map.with_budget("spatten:keep={1.5budget},final={0.5budget}", 41.0),
                         "spatten:keep=62,final=20")
        self.assertEqual(needle_map.with_budget("evictor=h2o:budget={budget}", 20, "%"), "evictor=h2o:budget=20%")
        self.assertEqual(needle_map.with_budget("kv_format=kivi:bits=2", 20), "kv_format=kivi:bits=2")

    def test_techniques_are_joined(self):
        joined = "evictor=snapkv:budget=20% + attention=quest:block=32,top=5"
        self.assertEqual(needle_map.parts_of(joined), ["evictor=snapkv:budget=20%", "attention=quest:block=32,top=5"])
        self.assertEqual(needle_map.parts_of(""), [])
        self.assertEqual(needle_map.short_title(joined), "evictor=snapkv + attention=quest")
        self.assertEqual(needle_map.short_title("evictor=h2o:budget=20%"), "evictor=h2o:budget=20%")
        long = "h2o:budget=20%,scope=stream,worth=sum"
        self.assertEqual(needle_map.short_title("evictor=" + long), long)

    def test_the_maps_have_each_share(self):
        cells = {(100, 0): [True, False], (100, 4): [True], (200, 2): [False]}
        maps = needle_map.heat_maps([("all keys", cells), ("h2o <20%>", cells)], [100, 200], {100: 31.4, 200: 63.0})
        self.assertEqual([one["title"] for one in maps["maps"]], ["all keys: 0.50", "h2o <20%>: 0.50"])
        self.assertEqual(maps["maps"][0]["rows"], ["10 %", "30 %", "50 %", "70 %", "90 %"])
        self.assertEqual(maps["maps"][0]["columns"], ["31", "63"])
        self.assertEqual(maps["maps"][0]["values"], [[0.5, None], [None, None], [None, 0.0], [None, None], [1.0, None]])


if __name__ == "__main__":
    unittest.main()
