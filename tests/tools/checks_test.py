#!/usr/bin/env python3
"""The checks in tools/ find what they are for: each broken rule, made in a temporary tree, must fail.

Run by CTest, one entry a class (`checks_test.py LayersTest`).
"""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")

CMAKE = """
add_module(base LIBS Threads::Threads)
add_module(tensor DEPS base)
add_module(kernels DEPS tensor)
add_module(models DEPS kernels)
add_module(schedule DEPS tensor # models
)
"""


class CheckCase(unittest.TestCase):
    """A small correct tree in a temporary folder; write() adds to it or spoils it."""

    tool = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("src/CMakeLists.txt", CMAKE)
        self.write("include/millrace/result.h", "#pragma once\n")
        self.write("src/base/result.h", '#pragma once\n#include "millrace/result.h"\n')
        self.write("src/tensor/tensor.h", '#pragma once\n#include "base/result.h"\n')
        self.write("src/kernels/matmul.cc", '#include "tensor/tensor.h"\nint f() { return 1; }\n')
        self.write("src/models/model.cc", '#include <vector>\n#include "base/result.h"\n#include "tensor/tensor.h"\n')

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def check(self, *arguments):
        result = subprocess.run([sys.executable, os.path.join(TOOLS, self.tool), self.root, *arguments],
                                capture_output=True, text=True, check=False)
        self.assertNotIn("Traceback", result.stderr)
        return result.returncode, result.stdout

    def assert_passes(self, *arguments):
        status, output = self.check(*arguments)
        self.assertEqual(status, 0, output)
        return output

    def assert_fails(self, words, *arguments):
        status, output = self.check(*arguments)
        self.assertEqual(status, 1, output)
        self.assertIn(words, output)


class LayersTest(CheckCase):
    tool = "check_layers"

    def test_a_correct_tree_passes(self):
        self.assertIn("5 files, 5 modules, 0 problems", self.assert_passes())

    def test_an_edge_upwards_fails(self):
        self.write("src/tensor/bad.h", '#include "kernels/matmul.h"\n')
        self.assert_fails("src/tensor/bad.h:1: src/tensor may not include")

    def test_a_comment_is_no_include(self):
        self.write("src/tensor/good.h", '// #include "kernels/matmul.h"\n/*\n#include "models/model.h"\n*/\n')
        self.assert_passes()

    def test_a_declared_edge_that_the_design_forbids_fails(self):
        self.write("src/CMakeLists.txt", CMAKE.replace("#", " "))
        self.write("src/schedule/planner.cc", '#include "models/model.h"\n')
        self.assert_fails("src/CMakeLists.txt: schedule must never depend on models")
        self.assert_fails("src/schedule/planner.cc:1: src/schedule must never depend on models")

    def test_the_c_interface_belongs_to_its_module(self):
        self.write("src/CMakeLists.txt", CMAKE + "\nadd_module(capi DEPS models)\n")
        self.write("src/capi/model.cc", '#include "millrace.h"\n#include "millrace/engine.h"\n')
        self.assert_passes()
        self.write("src/models/model.cc", '#include "millrace.h"\n')
        self.assert_fails('src/models/model.cc:1: "millrace.h": write includes relative to src/')

    def test_one_name_for_two_types_fails(self):
        text = "#pragma once\nnamespace millrace {\nnamespace {\nstruct Own {\n};\n}  // namespace\nclass Url final : public Base {\n};\n" \
               "struct Url::Part {\n};\nstruct Other;\n}  // namespace millrace\n"
        self.write("src/tensor/url.h", text)
        self.write("src/models/url.h", text.replace("Url", "Link").replace("Part", "Url"))
        self.write("src/kernels/url.h", text.replace("namespace millrace", "namespace millrace::kernels"))
        self.assert_passes()
        self.write("src/models/url.h", text)
        self.assert_fails("src/tensor/url.h: millrace::Url is also defined in src/models/url.h")

    def test_json_without_a_bound_fails(self):
        good = "auto a = parse_json(text);\nauto b = Json::parse(text, [&](int depth, E, Json&) { return depth < 9; }, false);\n" \
               "auto c = Json::parse(text, within, false);  // Json::parse(text)\n"
        self.write("src/models/read.cc", good)
        self.write("src/models/read_test.cc", "auto a = Json::parse(text);\n")
        self.write("src/base/json_text.h", "auto a = Json::parse(text.begin(), text.end(), nullptr, false);\n")
        self.assert_passes()
        for call in ("Json::parse(text)", "nlohmann::json::parse(text, nullptr, false)", "Json::parse(text.begin(), text.end(), nullptr, false)",
                     "nlohmann::ordered_json::parse(file.text(), nullptr, false)"):
            self.write("src/models/read.cc", f"{good}auto d = {call};\n")
            self.assert_fails("src/models/read.cc:4: JSON from outside")

    def test_a_call_of_linux_alone_fails(self):
        self.write("src/base/system.cc", "#include <sched.h>\nvoid f(int* ends) { pipe2(ends, 0); }\n")
        self.write("src/tensor/map.cc", "void f(void* p) { munmap(p, 1); }  // not madvise(p, 1, MADV_DONTNEED)\n")
        self.assert_passes()
        for code in ("#include <sys/epoll.h>\n", "void f(int* ends) { ::pipe2(ends, 0); }\n", "int f = MSG_NOSIGNAL;\n"):
            self.write("src/tensor/map.cc", "\n" + code)
            self.assert_fails("src/tensor/map.cc:2: ")

    def test_a_thread_started_by_hand_fails(self):
        self.write("src/base/start_thread.cc", "void f() { return std::thread(std::move(work)); }\n")
        self.write("src/tensor/map.cc", "std::thread thread_;\nstd::vector<std::thread> threads;\n"
                                        "int n = std::thread::hardware_concurrency();\n"
                                        "void f() { thread_ = std::move(*started); threads.push_back(t); }\n")
        self.assert_passes()
        for code in ("thread_ = std::thread([this] { loop(); });", "std::thread worker([] {});", "std::jthread t;",
                     "auto made = std::async([] {});", "threads.emplace_back([this] { loop(); });",
                     "A::A() : thread_([this] { loop(); }) {}", "boost::asio::thread_pool workers;"):
            self.write("src/tensor/map.cc", "\n" + code + "\n")
            self.assert_fails("src/tensor/map.cc:2: starts a thread")

    def test_the_json_library_included_by_hand_fails(self):
        self.write("src/base/json_library.h", "#pragma once\n#include <nlohmann/json.hpp>\n")
        self.write("src/tensor/map.cc", "#include <nlohmann/json_fwd.hpp>\n")
        self.assert_passes()
        self.write("src/tensor/map.cc", "#include <nlohmann/json.hpp>\n")
        self.assert_fails("src/tensor/map.cc:1: include \"base/json_library.h\"")

    def test_a_file_renamed_by_hand_fails(self):
        self.write("src/base/publish.cc", "void f() { ::rename(a, b); }\n")
        self.write("src/tensor/map.cc", "void f() { publish(a, b); }  // not rename(a, b)\n")
        self.assert_passes()
        for code in ("void f() { std::filesystem::rename(a, b); }\n", "int f = ::renameat(1, a, 2, b);\n"):
            self.write("src/tensor/map.cc", "\n" + code)
            self.assert_fails("src/tensor/map.cc:2: ")

    def test_a_circle_of_modules_fails(self):
        self.write("src/CMakeLists.txt", CMAKE.replace("add_module(tensor DEPS base", "add_module(tensor DEPS models"))
        self.assert_fails("in a circle")

    def test_intrinsics_outside_their_files_fail(self):
        self.write("src/kernels/x86/dot_avx2.cc", "#include <immintrin.h>\n")
        self.assert_passes()
        self.write("src/kernels/dot.cc", "#include <immintrin.h>\n")
        self.assert_fails("src/kernels/dot.cc:1: <immintrin.h>")

    def test_neon_outside_the_folder_for_arm_fails(self):
        self.write("src/kernels/arm/dot_neon.cc", "#include <arm_neon.h>\n")
        self.assert_passes()
        for path in ("src/kernels/dot.cc", "src/kernels/x86/dot_avx2.cc"):
            place = self.write(path, "#include <arm_neon.h>\n")
            self.assert_fails(f"{path}:1: <arm_neon.h>")
            os.remove(place)

    def test_a_header_for_one_feature_of_arm_elsewhere_fails(self):
        self.write("src/kernels/arm/dot_i8mm.h", "")
        self.write("src/kernels/arm/sum_i8mm.cc", '#include "kernels/arm/dot_i8mm.h"\n')
        self.assert_passes()
        self.write("src/kernels/arm/sum_neon.cc", '#include "kernels/arm/dot_i8mm.h"\n')
        self.assert_fails('"kernels/arm/dot_i8mm.h" is for one instruction set')

    def test_a_header_of_one_instruction_set_elsewhere_fails(self):
        self.write("src/kernels/x86/simd_avx2.h", "")
        self.write("src/kernels/dot.cc", '#include "kernels/x86/simd_avx2.h"\n')
        self.assert_fails("is for one instruction set")

    def test_a_language_model_word_in_base_fails(self):
        self.write("src/base/log.h", "// tokens are what the caller counts\nint lines;\n")
        self.assert_passes()
        self.write("src/base/log.h", "int\nprompt_tokens;\n")
        self.assert_fails("src/base/log.h:2: src/base must not mention language models")

    def test_an_include_without_its_folder_fails(self):
        self.write("src/tensor/half.cc", '#include "tensor.h"\n')
        self.assert_fails("write includes relative to src/")

    def test_a_unit_test_may_use_tests_headers_only(self):
        self.write("tests/shared_data.h", "")
        self.write("src/tensor/half_test.cc", '#include "shared_data.h"\n')
        self.assert_passes()
        self.write("src/tensor/half_test.cc", '#include "models/model.h"\n')
        self.assert_fails("src/tensor may not include")

    def test_a_private_header_in_a_public_one_fails(self):
        self.write("include/millrace/model.h", '#include "base/result.h"\n')
        self.assert_fails("include/millrace/model.h:1: a public header")

    def test_a_folder_without_module_fails(self):
        self.write("src/helpers/strings.h", "")
        self.assert_fails("no add_module()")


class SizesTest(CheckCase):
    tool = "check_sizes"

    def body(self, head, lines):
        return head + " {\n" + "  f(1);\n" * (lines - 2) + "}\n"

    def test_long_files(self):
        self.write("src/tensor/long.cc", "\n" * 800)
        self.assertIn("warning: 800 lines", self.assert_passes())
        self.write("src/tensor/long.cc", "\n" * 801)
        self.assert_fails("src/tensor/long.cc: 801 lines")

    def test_long_scripts(self):
        self.write("tools/check_all", "\n" * 801)
        self.assert_fails("tools/check_all: 801 lines")

    def test_long_functions_of_every_kind(self):
        for head, name in [
                ("int f(int a, int b)", "f"),
                ("Result<std::map<int, int>> C::g(const std::vector<int>& v) const noexcept", "C::g"),
                ("template <typename T = int>\nauto h(T t) -> decltype(t)", "h"),
                ("C::C(int a) : a_(a), b_{1, 2}, c_(f(a))", "C::C"),
                ("C::~C()", "C::~C"),
                ("bool operator==(const C& a, const C& b)", "operator=="),
                ("void i(std::function<void()> f = [] {}, int n = 3)", "i")]:
            with self.subTest(head):
                self.write("src/tensor/long.cc", "namespace a {\n" + self.body(head, 120 - head.count("\n")) + "}\n")
                self.assert_passes()
                self.write("src/tensor/long.cc", "namespace a {\n" + self.body(head, 121 - head.count("\n")) + "}\n")
                self.assert_fails(f"{name} has 12")

    def test_a_class_is_measured_by_its_functions(self):
        small = self.body("void f()", 50)
        self.write("src/tensor/wide.h", "class C : public B {\n public:\n" + small * 5 + "};\n")
        self.assert_passes()
        self.write("src/tensor/wide.h", "class C : public B {\n public:\n" + self.body("void f() const override", 130) + "};\n")
        self.assert_fails("src/tensor/wide.h:3: f has 130 lines")

    def test_a_table_is_no_function(self):
        self.write("src/tensor/table.cc", "const int kTable[] = {\n" + "  f(1),\n" * 200 + "};\n")
        self.assert_passes()

    def test_braces_in_comments_and_strings_do_not_count(self):
        self.write("src/tensor/text.cc", "void f() {\n  // }\n  g(\"}\", '}', R\"x(}}})x\", 1'000);\n" + "\n" * 130 + "}\n")
        self.assert_fails("f has 134 lines")


FORMATS = """
extern const Format kQ4;
const Format* const kAll[] = {&kQ4};
"""


class RegistryTest(CheckCase):
    tool = "check_registry"

    def setUp(self):
        super().setUp()
        self.write("src/formats/builtin.cc", FORMATS)
        self.write("src/formats/q4.cc", 'extern const Format kQ4 = {\n    .name = "q4",\n};\n')
        self.write("src/formats/scale_fit.h", "")
        self.write("src/formats/scale_fit.cc", "float fit() { return 1; }\n")

    def binary(self, output, status=0):
        path = self.write("millrace", f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return "--binary", path

    def test_a_listed_member_passes(self):
        self.assertIn("1 names", self.assert_passes())

    def test_a_member_not_listed_fails(self):
        self.write("src/formats/q5.cc", 'const Format kQ5 = {.name = "q5"};\n')
        self.assert_fails("src/formats/q5.cc: kQ5 is not named in src/formats/builtin.cc")

    def test_a_name_in_a_comment_is_not_listed(self):
        self.write("src/formats/builtin.cc", FORMATS + "// kQ5 later\n")
        self.write("src/formats/q5.cc", 'const Format kQ5 = {.name = "q5"};\n')
        self.assert_fails("kQ5 is not named")

    def test_a_factory_not_listed_fails(self):
        self.write("src/sampling/builtin.cc", 'Entry k[] = {{{"sampler", "top_k", "help", {"a", "b"}}, make_top_k}};\n')
        self.write("src/sampling/steps/top_k.cc", "std::unique_ptr<Step> make_top_k(const Options& o) {\n  return f(o);\n}\n")
        self.assertIn("2 names", self.assert_passes())
        self.write("src/sampling/steps/top_p.cc", "std::unique_ptr<Step> make_top_p(const Options& o) {\n  return f(o);\n}\n")
        self.assert_fails("src/sampling/steps/top_p.cc: make_top_p is not named")

    def test_a_family_without_builtin_fails(self):
        self.write("src/models/arch/llama.cc", 'const Arch kLlama = {.name = "llama"};\n')
        self.assert_fails("src/models/arch: no src/models/arch/builtin.cc")

    def test_the_binary_must_list_every_name(self):
        self.assert_passes(*self.binary(self.listed(name="q4")))
        self.assert_fails("does not list 'q4'; rebuild it", *self.binary(self.listed(name="q5")))
        self.assert_fails("techniques --json", *self.binary("not JSON"))
        self.assert_fails("exit status 2", *self.binary("[]", 2))

    def listed(self, **fields):
        self.write("tests/q4_test.cc", "TEST(Q4, RoundTrips) {\n}\n")
        entry = {"family": "format", "name": "q4", "summary": "4 bits", "paper": None, "lossless": False, "options": [],
                 "test": "tests/q4_test.cc", "proof": ""}
        return json.dumps([{**entry, **fields}])

    def test_every_printed_field_is_filled(self):
        paper = {"authors": "A and B", "title": "Q4", "year": 2024, "text": "A and B, 2024, Q4"}
        self.assert_passes(*self.binary(self.listed(paper=paper, test="Q4.RoundTrips")))
        self.assert_fails("format=q4: no summary", *self.binary(self.listed(summary="")))
        self.assert_fails("paper is not", *self.binary(self.listed(paper={**paper, "year": 0})))
        self.assert_fails("says neither lossless nor lossy", *self.binary(self.listed(lossless=None)))
        self.assert_fails("no such test: 'tests/q5_test.cc'", *self.binary(self.listed(test="tests/q5_test.cc")))
        self.assert_fails("no such test: 'Q4.Rounds'", *self.binary(self.listed(test="Q4.Rounds")))
        self.assert_fails("no such proof: docs/q4.md; run tools/prove ", *self.binary(self.listed(proof="docs/q4.md")))

    def test_counts_in_the_readme_are_those_of_the_program(self):
        self.write("README.md", "The registry has 1 members in 1 families; it runs 0 architectures.\n")
        self.assert_passes(*self.binary(self.listed()))
        self.write("README.md", "The registry has 2 members in 1 families.\n")
        self.assert_fails("README.md: says 2 members; the program has 1", *self.binary(self.listed()))
        self.write("README.md", "| 3 architectures | Llama |\n")
        self.assert_fails("README.md: says 3 architectures; the program has 0", *self.binary(self.listed()))


class EnumsTest(CheckCase):
    tool = "check_enums"

    def setUp(self):
        super().setUp()
        self.write("include/millrace/request.h", "struct Request {\n  enum class Kind : uint8_t { none, regex };\n  Kind kind;\n};\n")

    def test_switches_and_other_indices_pass(self):
        self.write("src/base/lists.cc", "int f(int32_t state, int i) { return list[static_cast<size_t>(state)] + list[i]; }\n"
                   "// kNames[static_cast<size_t>(kind)], static_cast<Kind>(1)\n"
                   "int g(int kind) { return list[static_cast<size_t>(kind)]; }  // a number, whatever its name\n")
        self.assertIn("1 enums, 0 problems", self.assert_passes())

    def test_an_array_by_enumerator_fails(self):
        for index in ("static_cast<size_t>(request.kind)", "static_cast<int>(kind)", "std::to_underlying(a->kind)", "size_t(kind())"):
            self.write("src/base/names.h", '#include "millrace/request.h"\n')
            self.write("src/base/names.cc", f'#include "base/names.h"\nauto f() {{ return kNames[{index}]; }}\n')
            self.assert_fails("src/base/names.cc:2: an array indexed by enumerator 'kind'")
            self.write("src/base/names.cc", f"auto f() {{ return kNames[{index}]; }}\n")  # some other kind
            self.assert_passes()

    def test_an_enumerator_itself_as_index_fails(self):
        self.write("src/base/names.cc", "auto f() { return kNames[static_cast<int>(Request::Kind::regex)]; }\n")
        self.assert_fails("an array indexed by enumerator 'regex'")

    def test_a_number_made_an_enumerator_fails(self):
        self.write("apps/read.cc", "auto f(int i) { return static_cast<Request::Kind>(i); }\n")
        self.assert_fails("apps/read.cc:1: static_cast<Request::Kind>")

    def test_the_facility_itself_may(self):
        self.write("src/base/enum_table.h", "auto f(int i) { return static_cast<Kind>(i); }\n")
        self.assert_passes()


class DocsTest(CheckCase):
    tool = "check_docs"

    TABLE = "".join(f"| `{name}` | what it is for |\n"
                    for name in ("src/base/", "src/tensor/", "src/kernels/", "src/models/", "include/millrace/", "docs/"))
    START = "# Title\n\nDo this with it.\n\n    millrace help\n\n"

    def setUp(self):
        super().setUp()
        self.TABLE = self.START + type(self).TABLE
        self.write("docs/README.md", self.START + "See [architecture](architecture.md).\n")

    def test_a_true_document_passes(self):
        self.write("docs/architecture.md", self.TABLE)
        self.write("README.md", "See [it](docs/architecture.md#title), `src/models/model.cc` and `src/*/x_test.cc`.\n")
        self.assertIn("3 documents, 0 problems", self.assert_passes())

    def test_a_folder_left_out_fails(self):
        self.write("docs/architecture.md", self.TABLE.replace("| `src/base/` | what it is for |\n", ""))
        self.assert_fails("does not say what src/base/ is for")

    def test_a_folder_that_is_not_there_fails(self):
        self.write("docs/architecture.md", self.TABLE + "| `src/cluster/` | later |\n")
        self.assert_fails("lists src/cluster/, which does not exist")

    def test_a_path_that_is_not_there_fails(self):
        self.write("docs/architecture.md", self.TABLE + "`src/base/new.cc`:\n\n```cpp\n`src/base/code.cc`\n```\n")
        self.assert_passes()
        self.write("docs/architecture.md", self.TABLE + "as `src/base/gone.cc` does\n")
        self.assert_fails("names src/base/gone.cc")

    def test_a_link_that_leads_nowhere_fails(self):
        self.write("docs/architecture.md", self.TABLE + "[a](https://example.org/b) [c](gone.md)\n")
        self.assert_fails("links to docs/gone.md")
        self.write("docs/architecture.md", self.TABLE + '<img src="gone.png">\n')
        self.assert_fails("links to docs/gone.png")

    def test_an_anchor_that_no_heading_has_fails(self):
        self.write("docs/architecture.md", self.TABLE + "## What `it` is, and why\n\n[a](#what-it-is-and-why) [b](README.md#title)\n")
        self.assert_passes()
        self.write("docs/architecture.md", self.TABLE + "## Why\n\n[a](#because)\n")
        self.assert_fails("links to docs/architecture.md#because; that page has no such heading")
        self.write("docs/architecture.md", self.TABLE + "[a](README.md#names)\n")
        self.assert_fails("links to docs/README.md#names; that page has no such heading")

    def test_a_page_two_links_from_the_map_passes_and_an_orphan_fails(self):
        self.write("docs/architecture.md", self.TABLE + "[a](deep/near.md)\n")
        self.write("docs/deep/near.md", self.START)
        self.assert_passes()
        self.write("docs/deep/near.md", self.START + "[a](far.md)\n")
        self.write("docs/deep/far.md", self.START)
        self.assert_fails("docs/deep/far.md: neither docs/README.md nor a page that it links has a link to it")
        self.write("docs/architecture.md", self.TABLE + "[a](deep/near.md) [b](deep/far.md)\n")
        self.assert_passes()
        os.remove(os.path.join(self.root, "docs/README.md"))
        self.assert_fails("docs/README.md: does not exist")

    def test_a_page_of_a_folder_begins_so_too_except_decisions(self):
        self.write("docs/architecture.md", self.TABLE + "[a](deep/page.md) [b](decisions/page.md)\n")
        self.write("docs/decisions/page.md", "# A decision\n")
        self.write("docs/deep/page.md", self.START)
        self.assert_passes()
        self.write("docs/deep/page.md", "# A page\n")
        self.assert_fails("docs/deep/page.md: no command in the first")

    def test_a_page_begins_with_what_the_reader_can_do_and_a_command(self):
        self.write("docs/architecture.md", self.TABLE)
        for start, words in (("Do this.\n\n    millrace help\n", "does not begin with its title"),
                             ("# Title\n\nDo this.\n", "no command in the first"),
                             ("# Title\n\nDo this.\n\n    words in an indented block\n", "no command in the first"),
                             ("# Title\n\nDo this.\n" + "More.\n" * 20 + "\n    millrace help\n", "no command in the first"),
                             ("# Title\n\nDo this.\n\n## Then\n\n    millrace help\n", "no command in the first"),
                             ("# Title\n\n    millrace help\n", "has no sentence before it"),
                             ("# Title\n\n| a table |\n\n    millrace help\n", "has no sentence before it")):
            self.write("docs/README.md", start + "\n[a](architecture.md)\n")
            self.assert_fails("docs/README.md: ")
            self.assert_fails(words)
        self.write("docs/README.md", "# Title\n\nDo this.\n\n    ./run help\n\n[a](architecture.md)\n")
        self.assert_passes()


class ProseTest(CheckCase):
    tool = "check_prose"

    def test_plain_comments_and_messages_pass(self):
        self.write("src/base/plain.h", "// Returns the mean of all values.\nint mean();  // rounded up, `in the mean`\n")
        self.write("src/base/plain.cc", '// What an unchanged file says is not looked at.\nconst char* k = "no such file";\n')
        self.assertIn("0 problems", self.assert_passes())

    def test_a_comment_without_a_subject_fails(self):
        for comment in ("The same for rows.", "Returns it. Of the first layer.", "Whether it is there.", "What it has."):
            self.write("src/base/bad.h", f"// A file.\n//\n// {comment}\nint f();\n")
            self.assert_fails("src/base/bad.h:3: ")

    def test_a_name_fails_in_a_header(self):
        self.write("src/base/bad.h", "inline constexpr int kMostRows = 8;  // `kMostRows` may be said\n")
        self.assert_fails("src/base/bad.h:1: 'kMostRows': kMax, kMin")

    def test_a_comment_behind_a_member_stands_alone(self):
        self.write("src/base/bad.h", "int bytes = 0;  // of one block\n")
        self.assert_fails("src/base/bad.h:1: 'of'")

    def test_a_sentence_over_two_lines_is_one(self):
        self.write("src/base/bad.h", "// The share that is kept in the\n// mean over heads.\nint f();\n")
        self.assert_fails("'in the mean': on average")

    def test_a_message_fails_and_a_test_may_say_it(self):
        self.write("src/base/bad_test.cc", 'const char* k = "computed anew";\n')
        self.assert_passes()
        self.write("src/base/bad.cc", 'const char* k = "computed "\n    "anew";\n')
        self.assert_fails("src/base/bad.cc:1: 'anew'")

    def git(self, *words):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a", *words], check=True,
                       capture_output=True)

    def test_added_lines_of_sources_and_documents_fail(self):
        self.write("src/base/old.cc", "// The same as before.\n")
        self.write("docs/old.md", "It is computed anew.\n")
        self.git("init")
        self.git("add", "-A")
        self.git("commit", "-m", "first")
        self.assert_passes("--since", "HEAD")
        self.write("docs/old.md", "It is computed anew.\nAnd anew.\n")
        self.assert_fails("docs/old.md:2: 'anew'", "--since", "HEAD")
        self.write("docs/old.md", "<!-- Made by a tool; not by hand. -->\nIt is computed anew.\nAnd anew.\n")
        self.assert_passes("--since", "HEAD")
        self.write("src/base/old.cc", "// The same as before.\n\n// The same here.\n")
        self.assert_fails("src/base/old.cc:3: 'The same'", "--since", "HEAD")


if __name__ == "__main__":
    unittest.main()
