#include "hub/modelfile.h"

#include <gtest/gtest.h>

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
                                      {"FROM a\nFROM b", "line 2: FROM: is given twice"},
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

}  // namespace
}  // namespace millrace
