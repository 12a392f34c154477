#include "hub/modelfile.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace millrace {
namespace {

TEST(Modelfile, ReadsWhatItWrites) {
  const auto model = parse_modelfile(
      "# a comment\n\nfrom ./m.gguf\nPARAMETER temperature 0.6\nparameter stop \"a b\"\nSYSTEM \"\"\"two\nlines\"\"\"\n"
      "TEMPLATE \"\"\"{% for m in messages %}{{ m.content }}{% endfor %}\"\"\"\nADAPTER a.gguf\nMESSAGE user hi "
      "there\n");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->from, "./m.gguf");
  EXPECT_EQ(model->system, "two\nlines");
  EXPECT_EQ(model->parameters,
            (std::vector<std::pair<std::string, std::string>>{{"temperature", "0.6"}, {"stop", "a b"}}));
  EXPECT_EQ(model->messages, (std::vector<std::pair<std::string, std::string>>{{"user", "hi there"}}));
  EXPECT_TRUE(model->notes.empty());
  const auto again = parse_modelfile(modelfile_text(*model));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->chat_template, model->chat_template);
  EXPECT_EQ(again->system, model->system);
  EXPECT_EQ(again->parameters, model->parameters);
  EXPECT_EQ(again->adapters, model->adapters);
  EXPECT_EQ(again->messages, model->messages);
}

TEST(Modelfile, ErrorsNameTheLine) {
  for (const auto& [text, message] : {std::pair{"", "FROM is missing"},
                                      {"FROM a\nFROM ", "line 2: FROM: needs a value"},
                                      {"FROM a\nDRAFT ", "line 2: DRAFT: needs a value"},
                                      {"FROM a\n\n\nPARAMETER x", "line 4: PARAMETER: needs a name and a value"},
                                      {"FROM a\nSYSTEM \"\"\"x\n\nMORE", "line 2: SYSTEM: the closing"},
                                      {"FROM a\nSYSTEM \"\"\"x\ny\"\"\"\nWHAT 1", "line 4: WHAT: unknown"}}) {
    const auto model = parse_modelfile(text);
    ASSERT_FALSE(model.ok()) << text;
    EXPECT_NE(model.error().message.find(message), std::string::npos) << model.error().message;
    EXPECT_EQ(model.error().kind, ErrorKind::user);
  }
}

TEST(Modelfile, TellsGoTemplatesFromJinja) {
  for (const char* go : {"{{ .Prompt }}", "{{- range .Messages }}{{ end }}", "{{ if .System }}x{{ end }}", "a {{$x}}"})
    EXPECT_TRUE(is_go_template(go)) << go;
  for (const char* jinja : {"", "{{ messages[0].content }}", "{% if x %}{{ x }}{% endif %}", "{{ bos_token }}"})
    EXPECT_FALSE(is_go_template(jinja)) << jinja;
  const auto model = parse_modelfile("FROM a\nTEMPLATE {{ .Prompt }}");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->chat_template, "");
  EXPECT_EQ(model->notes.size(), 1u);
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Files that Ollama's parser reads, and the values it reads.
TEST(Modelfile, ValuesFollowOllamasGrammar) {
  const std::pair<const char*, const char*> systems[] = {
      {"SYSTEM \"\"\"\"\"\"", ""},
      {"SYSTEM \"\"", ""},
      {"SYSTEM ", ""},
      {"SYSTEM   plain text  ", "plain text"},
      {"SYSTEM \"  kept  \"", "  kept  "},
      {"SYSTEM \"over\ntwo lines\"", "over\ntwo lines"},
      {"SYSTEM \"\"\"\nThis is\n\"quoted\".\n\"\"\"   ", "\nThis is\n\"quoted\".\n"},
      {"SYSTEM \"a \"quote\" inside\"", "a \"quote\" inside"},
      {"SYSTEM \"\"\"''\"'\"\"'\"\"'\"'''''\"\"'\"\"'\"\"\"", "''\"'\"\"'\"\"'\"'''''\"\"'\"\"'"},
      {"SYSTEM say \"\"\"this\"\"\" now", "say \"\"\"this\"\"\" now"},
      {"system # no comment", "# no comment"},
      {"SYSTEM it's", "it's"},
  };
  for (const auto& [line, value] : systems) {
    for (const char* end : {"", "\n", "\r\n", "\nPARAMETER seed 1\n"}) {
      const auto model = parse_modelfile(std::string("FROM a\n") + line + end);
      ASSERT_TRUE(model.ok()) << line << ": " << model.error().message;
      EXPECT_EQ(model->system, value) << line;
      EXPECT_EQ(model->parameters.size(), std::string(end).size() > 2 ? 1u : 0u) << line;
    }
  }
  const auto model = parse_modelfile(
      "\n  # comment\nFROM \"     model 1\"\nPARAMETER stop \"\"\"### User:\n\"\"\"\nPARAMETER stop "
      "\"\n\n\"\nPARAMETER stop "
      "\"### User: \"\nPARAMETER stop </s> \nMESSAGE user\t\"\"\"two\nlines\"\"\"\nMESSAGE assistant \"\"\n");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->from, "     model 1");
  EXPECT_EQ(model->parameters,
            (Pairs{{"stop", "### User:\n"}, {"stop", "\n\n"}, {"stop", "### User: "}, {"stop", "</s>"}}));
  EXPECT_EQ(model->messages, (Pairs{{"user", "two\nlines"}, {"assistant", ""}}));
}

TEST(Modelfile, PartsOfOllamasProgramAreReported) {
  const auto model = parse_modelfile("FROM a\nRENDERER qwen3-coder\nPARSER harmony\nREQUIRES 0.14.0\nPARSER qwen3\n");
  ASSERT_TRUE(model.ok()) << model.error().message;
  const char* const words[] = {"RENDERER", "PARSER", "REQUIRES", "PARSER"};
  ASSERT_EQ(model->notes.size(), std::size(words));
  for (size_t i = 0; i < std::size(words); ++i) EXPECT_TRUE(model->notes[i].starts_with(words[i])) << model->notes[i];
  EXPECT_EQ(model->kept, (Pairs{{"RENDERER", "qwen3-coder"}, {"REQUIRES", "0.14.0"}, {"PARSER", "qwen3"}}));
  EXPECT_NE(modelfile_text(*model).find("\nPARSER qwen3\n"), std::string::npos);
}

TEST(Modelfile, SeveralFromLinesAndADraftAreKeptInOrder) {
  const auto model = parse_modelfile(
      "FROM ./model-00001-of-00002.gguf\nPARAMETER seed 1\nfrom \"./mmproj model.gguf\"\nDRAFT small\nFROM "
      "./model-00002-of-00002.gguf\nDRAFT ./other.gguf\n");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->from, "./model-00001-of-00002.gguf");
  EXPECT_EQ(model->more_from, (std::vector<std::string>{"./mmproj model.gguf", "./model-00002-of-00002.gguf"}));
  EXPECT_EQ(model->draft, "./other.gguf");  // the last one counts, as of every word that is no list
  const auto again = parse_modelfile(modelfile_text(*model));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *model);
}

TEST(Modelfile, RefusesWhatOllamaRefuses) {
  for (const char* line :
       {"MESSAGE badguy Hello", "MESSAGE System Hello", "MESSAGE tool 7", "MESSAGE system", "MESSAGE", "PARAMETER",
        "PARAMETER temperature", "PARAMETER a-b 1", "SYSTEM \"open", "SYSTEM \"\"\"open\"\"", "SYSTEM \"\"\"a\"\"\" b",
        "SYSTEM \"a\" b", "SYSTEM", "ADAPTER ", "SYSTEM: x", "-x", "REQUIRES newest", "REQUIRES 01.2"}) {
    EXPECT_FALSE(parse_modelfile(std::string("FROM a\n") + line).ok()) << line;
  }
  EXPECT_FALSE(parse_modelfile("FROM \n").ok());
}

TEST(Modelfile, ReadsEveryEncodingWithAByteOrderMark) {
  const std::u16string wide = u"FROM bob\r\nSYSTEM Gr\u00FC\u00DFe \U0001F600\r\nPARAMETER seed 1\r\n";
  std::string little = "\xFF\xFE", big = "\xFE\xFF";
  for (const char16_t unit : wide) {
    little += {static_cast<char>(unit & 0xFF), static_cast<char>(unit >> 8)};
    big += {static_cast<char>(unit >> 8), static_cast<char>(unit & 0xFF)};
  }
  const std::string greeting = "Gr\xC3\xBC\xC3\x9F\x65 \xF0\x9F\x98\x80";
  for (const std::string& text :
       {"\xEF\xBB\xBF\x46ROM bob\nSYSTEM " + greeting + "\nPARAMETER seed 1\n", little, big}) {
    const auto model = parse_modelfile(text);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->from, "bob");
    EXPECT_EQ(model->system, greeting);
    EXPECT_EQ(model->parameters, (Pairs{{"seed", "1"}}));
  }
  EXPECT_FALSE(parse_modelfile(std::string("\xFF\xFE\x46\0R", 5)).ok());  // cut inside a unit
}

// Random texts of the characters that matter to the grammar, in every place that holds a text.
TEST(Modelfile, EveryModelReadsBackTheSame) {
  constexpr const char* kPieces[] = {"a", " ", "\"", "\n", "\r", "\t", "#", "'", "\"\"", "FROM b\n", "\xC3\xBC", "\\"};
  uint64_t drawn = 0;
  const auto draw = [&](size_t n) {
    return static_cast<size_t>(philox_uniform(12, 0, drawn++) * static_cast<double>(n));
  };
  const auto text = [&] {
    std::string out;
    for (size_t length = draw(9); length > 0; --length) out += kPieces[draw(std::size(kPieces))];
    return out;
  };
  int left_out = 0;
  for (int round = 0; round < 3000; ++round) {
    Modelfile model;
    model.from = "m" + text();
    if (draw(2) == 0) model.more_from = {"n" + text(), text() + "o"};
    if (draw(2) == 0) model.draft = text() + "d";
    if (draw(2) == 0) model.kept = {{"PARSER", "p" + text()}, {"RENDERER", text() + "r"}};
    model.system = text();
    model.license = text();
    model.adapters = {"x" + text()};
    model.parameters = {{"stop", "y" + text()}, {"stop", text() + "z"}};
    model.messages = {{"user", text()}, {"assistant", text()}};
    const std::string written = modelfile_text(model);
    if (written.find("is left out: a line") != std::string::npos) {
      ++left_out;
      continue;
    }
    const auto again = parse_modelfile(written);
    ASSERT_TRUE(again.ok()) << written << again.error().message;
    Modelfile without_notes = *again;
    without_notes.notes.clear();
    EXPECT_EQ(without_notes, model) << written;
  }
  EXPECT_LT(left_out, 1200);
}

}  // namespace
}  // namespace millrace
