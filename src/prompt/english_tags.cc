#include "prompt/english_tags.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace millrace {
namespace {

struct TagWords {
  WordTag tag;
  std::string_view words;  // separated by spaces
};

constexpr std::array kClosedClasses = {
    TagWords{WordTag::determiner,
             "a an the this these those my your his her its our their some any no every each all both either neither "
             "another such many much few several most what"},
    TagWords{
        WordTag::pronoun,
        "i you he she it we they me him us them mine yours hers ours theirs myself yourself himself herself itself "
        "ourselves themselves someone somebody something anyone anybody anything everyone everybody everything "
        "nobody nothing one there"},
    TagWords{WordTag::negation, "not never n't"},
    TagWords{WordTag::preposition,
             "of in on at by for with from into onto about over under between among through during against without "
             "within across behind beyond near above below along around besides despite except inside outside "
             "toward towards upon via per off out up down like"},
    TagWords{WordTag::to, "to"},
    TagWords{WordTag::conjunction, "and or but nor yet so"},
    TagWords{WordTag::subordinator,
             "because although though while when whenever if unless until since after before as whereas once wherever "
             "whether"},
    TagWords{WordTag::relative, "who whom whose which where"},
    TagWords{WordTag::that, "that"},
    TagWords{WordTag::auxiliary,
             "am is are was were be been being do does did have has had will would can could may might shall should "
             "must isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't won't wouldn't can't cannot "
             "couldn't shouldn't mustn't"},
    TagWords{WordTag::adverb,
             "very quite rather too also just only even still already often always sometimes usually perhaps maybe "
             "again soon now then here almost nearly indeed however moreover furthermore therefore thus hence instead "
             "otherwise meanwhile anyway ever well far away together today yesterday tomorrow once twice later"},
    TagWords{WordTag::adjective,
             "good bad big small old new young long short high low great little large early late red blue green black "
             "white brown yellow hot cold warm happy sad nice kind poor rich main same other different own able last "
             "next first second third few best better worse worst strong weak fast slow easy hard full empty certain "
             "recent modern ancient early huge tiny"},
    TagWords{WordTag::verb,
             "said says say went go goes made make makes took take takes came come comes saw see sees knew know knows "
             "got get gave give gives found find finds thought think thinks told tell tells became become becomes "
             "left leave leaves felt feel feels put puts brought bring brings began begin begins kept keep keeps held "
             "hold holds wrote write writes stood stand stands heard hear hears let lets meant mean means met meet "
             "meets ran run runs paid pay pays sat sit sits spoke speak speaks led lead leads grew grow grows lost "
             "lose loses fell fall falls sent send sends built build builds understood drew drawn broke spent cut rose "
             "drove bought buy buys wore chose won win wins lives lived plays sings likes wants needs works called "
             "written taken given known shown seen done gone born ate eat eats slept sleep sleeps"},
};

using Lexicon = std::map<std::string, WordTag, std::less<>>;

const Lexicon& lexicon() {
  static const Lexicon words = [] {
    Lexicon out;
    for (const auto& [tag, text] : kClosedClasses) {
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(' ', begin), text.size());
        out.emplace(text.substr(begin, end - begin), tag);
        begin = end + 1;
      }
    }
    return out;
  }();
  return words;
}

bool ends_in(std::string_view word, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(
      endings, [&](std::string_view ending) { return word.size() > ending.size() + 2 && word.ends_with(ending); });
}

WordTag by_ending(std::string_view word) {
  if (word.front() >= '0' && word.front() <= '9') return WordTag::number;
  if (ends_in(word, {"ly"})) return WordTag::adverb;
  if (ends_in(word, {"ing"})) return WordTag::gerund;
  if (ends_in(word, {"ed", "ize", "ise", "izes", "ises"})) return WordTag::verb;
  if (ends_in(word, {"ful", "ous", "ive", "able", "ible", "ical", "ic", "less", "ish", "ary", "ian", "est"}))
    return WordTag::adjective;
  return WordTag::noun;
}

bool is_mark(char c) { return std::string_view("\"'`.!?()[]{}*,;:-").find(c) != std::string_view::npos; }

// Takes the marks off `written`.
TaggedWord read_word(std::string_view written) {
  constexpr std::string_view kBlanks = " \t\r\n\f\v";
  TaggedWord out;
  const size_t first = written.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return out;
  written = written.substr(first, written.find_last_not_of(kBlanks) + 1 - first);
  size_t begin = 0, end = written.size();
  for (; begin < end && is_mark(written[begin]); ++begin)
    out.opens = out.opens || written[begin] == '(' || written[begin] == '[';
  for (; end > begin && is_mark(written[end - 1]); --end) {
    const char c = written[end - 1];
    out.closes = out.closes || c == ')' || c == ']';
    out.comma = out.comma || c == ',' || c == ';' || c == ':' || c == '-';
  }
  if (begin == end) {  // marks alone
    out.closes = written.find_first_of(")]") != std::string_view::npos;
    out.comma = written.find_first_of(",;:-") != std::string_view::npos;
  }
  out.text = written.substr(begin, end - begin);
  out.capitalized = !out.text.empty() && out.text.front() >= 'A' && out.text.front() <= 'Z';
  for (char& c : out.text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Returns true if a noun phrase is open after this tag, so that a verb form that follows is part of it.
bool expects_noun(WordTag tag) {
  return tag == WordTag::determiner || tag == WordTag::adjective || tag == WordTag::number;
}

}  // namespace

std::vector<TaggedWord> tag_english(std::span<const std::string> words) {
  std::vector<TaggedWord> out;
  for (const std::string& written : words) {
    TaggedWord word = read_word(written);
    const auto known = lexicon().find(word.text);
    if (known != lexicon().end()) {
      word.tag = known->second;
    } else if (!word.text.empty() && (out.empty() || !word.capitalized)) {
      word.tag = by_ending(word.text);
    }
    const bool in_phrase = !out.empty() && expects_noun(out.back().tag) && !out.back().comma;
    if (in_phrase && word.tag == WordTag::verb)
      word.tag = known == lexicon().end() ? WordTag::adjective : WordTag::noun;  // the broken cup, a long run
    if (in_phrase && word.tag == WordTag::gerund) word.tag = WordTag::adjective;
    out.push_back(std::move(word));
  }
  // "this" and "all" alone are pronouns, and an adjective before no noun is what a verb says of the subject.
  for (size_t i = 0; i < out.size(); ++i) {
    const bool before_noun =
        i + 1 < out.size() && !out[i].comma && (out[i + 1].tag == WordTag::noun || expects_noun(out[i + 1].tag));
    if (out[i].tag == WordTag::determiner && !before_noun && i + 1 < out.size() &&
        (out[i + 1].tag == WordTag::auxiliary || out[i + 1].tag == WordTag::verb))
      out[i].tag = WordTag::pronoun;
  }
  return out;
}

}  // namespace millrace
