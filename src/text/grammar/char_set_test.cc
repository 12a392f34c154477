// Sets of characters against membership, their UTF-8 forms against an encoder, and properties against utf8proc's names.
#include "text/grammar/char_set.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <tuple>

#include "text/grammar/compile_budget.h"
#include "text/unicode.h"

namespace millrace {
namespace {

bool in(const CharSet& set, uint32_t c) {
  return std::ranges::any_of(set, [&](CharRange r) { return c >= r.first && c <= r.last; });
}
bool surrogate(uint32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// Characters at and next to the boundaries of UTF-8 lengths and bytes.
std::vector<uint32_t> edges() {
  std::vector<uint32_t> out;
  for (const uint32_t c : {0u,       0x20u,    0x22u,    0x5Cu,    0x7Fu,    0x80u,    0xBFu,     0xC0u,    0x7FFu,
                           0x800u,   0xFFFu,   0x1000u,  0xCFFFu,  0xD7FFu,  0xD800u,  0xDFFFu,   0xE000u,  0xFFFFu,
                           0x10000u, 0x1003Fu, 0x10040u, 0x3FFFFu, 0x40000u, 0xFFFFFu, 0x100000u, 0x10FFFFu})
    for (const int by : {-1, 0, 1})
      if (static_cast<int64_t>(c) + by >= 0 && c + static_cast<uint32_t>(by) <= kLastCodePoint)
        out.push_back(c + static_cast<uint32_t>(by));
  return out;
}

void expect_normal(const CharSet& set) {
  for (size_t i = 0; i < set.size(); ++i) {
    EXPECT_LE(set[i].first, set[i].last);
    EXPECT_TRUE(i == 0 || set[i].first > set[i - 1].last + 1) << set[i].first;
  }
}

TEST(CharSets, MatchTheirRanges) {
  const std::vector<uint32_t> points = edges();
  std::mt19937 random(1);
  const auto pick = [&] { return points[random() % points.size()]; };
  for (int turn = 0; turn < 400; ++turn) {
    CharSet a, b;
    for (uint32_t n = random() % 4; n > 0; --n) a.push_back({pick(), pick()});
    for (uint32_t n = random() % 4; n > 0; --n) b.push_back({pick(), pick()});
    const CharSet na = normalized(a), nb = normalized(b), not_a = complement(na), both = intersection(na, nb);
    for (const CharSet* one : {&na, &nb, &not_a}) expect_normal(*one);
    for (const uint32_t c : points) {
      ASSERT_EQ(in(na, c), in(a, c) && !surrogate(c)) << c;
      ASSERT_EQ(in(not_a, c), !in(a, c) && !surrogate(c)) << c;
      ASSERT_EQ(in(both, c), in(na, c) && in(nb, c)) << c;
    }
  }
  EXPECT_EQ(any_char().size(), 2u);
  EXPECT_TRUE(in(any_char(), 0) && in(any_char(), kLastCodePoint) && in(any_char(), 0xD7FF) && in(any_char(), 0xE000));
  EXPECT_TRUE(normalized({{0x110000, 0x120000}}).empty());
  EXPECT_EQ(normalized({{0x10FFFF, 0x120000}}).back().last, kLastCodePoint);
}

TEST(CharSets, EachCharacterHasOneUtf8Form) {
  const std::vector<uint32_t> points = edges();
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t j = i % 3; j < points.size(); j += 3) {
      const CharRange range{points[i], points[j]};
      std::vector<ByteSequence> forms;
      uint64_t count = 0, wanted = 0;
      for_each_utf8(range, [&](const ByteSequence& form) {
        uint64_t product = 1;
        for (int b = 0; b < form.length; ++b) {
          ASSERT_LE(form.first[static_cast<size_t>(b)], form.last[static_cast<size_t>(b)]);
          product *= uint64_t{form.last[static_cast<size_t>(b)]} - form.first[static_cast<size_t>(b)] + 1;
        }
        count += product;
        forms.push_back(form);
      });
      for (const CharRange& r : normalized({range})) wanted += r.last - r.first + 1;
      ASSERT_EQ(count, wanted) << range.first << " " << range.last;
      for (const uint32_t c : points) {
        if (surrogate(c)) continue;
        std::string bytes;
        append_utf8(bytes, c);
        const auto holds = [&](const ByteSequence& form) {
          bool yes = static_cast<size_t>(form.length) == bytes.size();
          for (size_t b = 0; b < bytes.size() && yes; ++b)
            yes = static_cast<uint8_t>(bytes[b]) >= form.first[b] && static_cast<uint8_t>(bytes[b]) <= form.last[b];
          return yes;
        };
        ASSERT_EQ(std::ranges::count_if(forms, holds), c >= range.first && c <= range.last ? 1 : 0) << c;
      }
    }
}

TEST(CharSets, PropertiesMatchUnicodeCategories) {
  const std::vector<std::tuple<const char*, const char*, std::set<std::string>>> names = {
      {"L", "Letter", {"Lu", "Ll", "Lt", "Lm", "Lo"}},
      {"LC", "Cased_Letter", {"Lu", "Ll", "Lt"}},
      {"Lu", "Uppercase_Letter", {"Lu"}},
      {"Ll", "Lowercase_Letter", {"Ll"}},
      {"Lt", "Titlecase_Letter", {"Lt"}},
      {"Lm", "Modifier_Letter", {"Lm"}},
      {"Lo", "Other_Letter", {"Lo"}},
      {"M", "Mark", {"Mn", "Mc", "Me"}},
      {"Mn", "Nonspacing_Mark", {"Mn"}},
      {"N", "Number", {"Nd", "Nl", "No"}},
      {"Nd", "Decimal_Number", {"Nd"}},
      {"Nd", "digit", {"Nd"}},
      {"P", "Punctuation", {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"}},
      {"Pd", "Dash_Punctuation", {"Pd"}},
      {"S", "Symbol", {"Sm", "Sc", "Sk", "So"}},
      {"Sc", "Currency_Symbol", {"Sc"}},
      {"Z", "Separator", {"Zs", "Zl", "Zp"}},
      {"Zs", "Space_Separator", {"Zs"}}};
  for (const auto& [short_name, long_name, categories] : names) {
    const CharSet set = unicode_property(short_name);
    for (const std::string& prefix : short_name == std::string("Lu")
                                         ? std::vector<std::string>{"", "gc=", "General_Category="}
                                         : std::vector<std::string>{""}) {
      const std::string name = prefix + long_name;
      const CharSet other = unicode_property(name);
      ASSERT_EQ(other.size(), set.size()) << name;
      for (size_t i = 0; i < set.size(); ++i)
        ASSERT_TRUE(other[i].first == set[i].first && other[i].last == set[i].last) << name;
    }
    size_t at = 0;
    for (uint32_t c = 0; c <= kLastCodePoint; c += c < 0x3000 ? 1 : 61) {
      while (at < set.size() && set[at].last < c) ++at;
      const bool holds = at < set.size() && set[at].first <= c;
      ASSERT_EQ(holds, categories.contains(utf8proc_category_string(static_cast<utf8proc_int32_t>(c))))
          << short_name << " " << c;
    }
  }
  for (const char* none : {"", "Greek", "l", "gc=", "General_Category", "Cn"})
    EXPECT_TRUE(unicode_property(none).empty()) << none;
}

TEST(CompileBudgets, CountUsageAndRejectMore) {
  CompileBudget budget({.bytes = 100, .seconds = 5});
  EXPECT_TRUE(budget.take(100).ok());
  EXPECT_EQ(budget.held_bytes(), 100);
  budget.give_back(40);
  {
    BudgetShare share(&budget);
    EXPECT_TRUE(share.resize(30).ok());
    EXPECT_TRUE(share.grow(5).ok());
    EXPECT_EQ(budget.held_bytes(), 95);
    EXPECT_TRUE(share.resize(10).ok());
    EXPECT_EQ(budget.held_bytes(), 70);
    BudgetShare copy(share), moved(std::move(share));
    EXPECT_EQ(budget.held_bytes(), 80);
    EXPECT_EQ(moved.bytes(), 10);
    copy = moved;
    EXPECT_EQ(budget.held_bytes(), 80);
    moved.detach();
    EXPECT_EQ(budget.held_bytes(), 70);
    EXPECT_TRUE(moved.resize(1 << 30).ok()) << "without a budget nothing is counted";
  }
  EXPECT_EQ(budget.held_bytes(), 60);
  EXPECT_EQ(budget.peak_bytes(), 100);
  const auto more = budget.take(41);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(more.error().message, "grammar: compiling it takes more than 9.54e-05 MiB; simplify it");
  budget.give_back(101);
  EXPECT_FALSE(budget.check().ok()) << "after the first rejection every call is rejected";
  EXPECT_EQ(budget.peak_bytes(), 101);
}

TEST(CompileBudgets, CheckTheClockPeriodically) {
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  CompileBudget budget({}, gone);
  EXPECT_TRUE(budget.check().ok());
  *gone = true;
  EXPECT_TRUE(budget.check(16383).ok());
  const auto refused = budget.check(1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(refused.error().message, "grammar: cancelled, the request has ended");
  *gone = false;
  EXPECT_FALSE(budget.check().ok());
  CompileBudget late({.seconds = -1});
  const auto out = late.check();
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().message, "grammar: compiling it takes longer than -1 s; simplify it");
}

}  // namespace
}  // namespace millrace
