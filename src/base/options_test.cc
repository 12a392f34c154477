#include "base/options.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

const std::vector<OptionSpec> kSchema = {
    {"window", OptionSpec::Type::integer, "64", 1, 4096, "tokens kept"},
    {"ratio", OptionSpec::Type::number, "0.5", 0, 1, "share kept"},
    {"sinks", OptionSpec::Type::boolean, "false", 0, 1, "keep the first tokens"},
};

TEST(Options, DefaultsAndOverrides) {
  auto values = parse_options("ratio=0.25,sinks", kSchema);
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values->integer("window"), 64);
  EXPECT_EQ(values->number("ratio"), 0.25);
  EXPECT_TRUE(values->boolean("sinks"));
}

TEST(Options, ErrorsNameTheOption) {
  EXPECT_EQ(parse_options("windw=3", kSchema).error().message, "windw: no such option; known: window, ratio, sinks");
  EXPECT_EQ(parse_options("window=0", kSchema).error().message, "window: must be between 1 and 4096, got 0");
  for (const std::string share : {"1.5", "1.0", "0.5", "64.", "1.0e1"})
    EXPECT_EQ(parse_options("window=" + share, kSchema).error().message,
              "window: expected an integer, got '" + share + "'");
  EXPECT_FALSE(parse_options("ratio=nan", kSchema).ok());
}

TEST(Options, GivenAndRepeated) {
  const auto values = parse_options("ratio=0.5", kSchema);
  ASSERT_TRUE(values.ok());
  EXPECT_TRUE(values->given("ratio"));
  EXPECT_FALSE(values->given("window"));
  EXPECT_EQ(parse_options("ratio=0.5,ratio=0.5", kSchema).error().message, "ratio: is given twice");
}

TEST(Options, OnlyATextMayContainCommas) {
  const std::vector<OptionSpec> schema = {{"ids", OptionSpec::Type::text, "", 0, 0, "tokens"},
                                          {"count", OptionSpec::Type::integer, "0", 0, 9, "of them"}};
  const auto values = parse_options("ids=1,2,3,count=4", schema);
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values->text("ids"), "1,2,3");
  EXPECT_EQ(values->integer("count"), 4);
  EXPECT_EQ(parse_options("count=4,2", schema).error().message, "2: no such option; known: ids, count");
  EXPECT_EQ(parse_options("ids=1,cuont=2", schema).error().message, "cuont: no such option; known: ids, count");
}

TEST(Options, ABackslashKeepsCommasInValues) {
  const std::vector<OptionSpec> schema = {{"path", OptionSpec::Type::text, "", 0, 0, ""},
                                          {"size", OptionSpec::Type::integer, "1", 0, 100, ""}};
  for (const char* value : {"a", "", ",", "a,size=3", "\\", "\\\\", "\\,", "a\\", ",,\\\\,", "C:\\new", "a=b,path=c"}) {
    const auto read = parse_options("path=" + escape_option(value) + ",size=7", schema);
    ASSERT_TRUE(read.ok()) << value << ": " << read.error().message;
    EXPECT_EQ(read->text("path"), value);
    EXPECT_EQ(read->integer("size"), 7);
  }
  EXPECT_EQ(parse_options("path=C:\\new,size=2", schema)->text("path"), "C:\\new") << "other backslashes stay";
}

}  // namespace
}  // namespace millrace
