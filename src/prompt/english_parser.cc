#include "prompt/english_parser.h"

#include <algorithm>

#include "prompt/english_tags.h"

namespace millrace {
namespace {

bool is_finite(WordTag tag) { return tag == WordTag::verb || tag == WordTag::auxiliary; }

bool in_noun_phrase(WordTag tag) {
  return tag == WordTag::noun || tag == WordTag::determiner || tag == WordTag::number || tag == WordTag::adjective;
}

class EnglishParser {
 public:
  explicit EnglishParser(std::vector<TaggedWord> words) : words_(std::move(words)) {}

  Constituents parse() {
    find_parentheses();
    find_comma_segments();
    for (size_t i = 0; i < words_.size(); ++i) {
      find_phrase(i);
      find_relative_clause(i);
      find_adverbial_clause(i);
      find_single_word(i);
    }
    drop_whole_sentences();
    find_core();
    return std::move(out_);
  }

 private:
  WordTag tag(size_t i) const { return words_[i].tag; }

  void add(size_t begin, size_t end) {
    if (begin >= end) return;
    const TokenRange range{static_cast<int64_t>(begin), static_cast<int64_t>(end - begin)};
    if (std::ranges::find(out_.modifiers, range) == out_.modifiers.end()) out_.modifiers.push_back(range);
  }

  void find_parentheses() {
    for (size_t i = 0; i < words_.size(); ++i) {
      if (!words_[i].opens) continue;
      for (size_t end = i; end < words_.size(); ++end) {
        if (!words_[end].closes) continue;
        add(i, end + 1);
        break;
      }
    }
  }

  // The word after the next comma from `i` on, or the end of the sentence.
  size_t after_comma(size_t i) const {
    while (i < words_.size() && !words_[i].comma) ++i;
    return std::min(i + 1, words_.size());
  }

  bool has_finite(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i)
      if (is_finite(tag(i))) return true;
    return false;
  }

  // Returns true if a segment after a comma adds to what is before it: a clause, a phrase, or an apposition.
  bool is_added(size_t begin, size_t end) const {
    switch (tag(begin)) {
      case WordTag::relative:
      case WordTag::preposition:
      case WordTag::subordinator:
      case WordTag::gerund:
      case WordTag::adverb: return true;
      default: return in_noun_phrase(tag(begin)) && !has_finite(begin, end) && end < words_.size();
    }
  }

  void find_comma_segments() {
    const size_t first = after_comma(0);
    if (first < words_.size() && is_introduction(first)) add(0, first);
    for (size_t begin = first; begin < words_.size();) {
      const size_t end = after_comma(begin);
      if (is_added(begin, end) && !is_list(begin, end)) add(begin, end);
      begin = end;
    }
  }

  bool is_introduction(size_t end) const {
    const WordTag front = tag(0);
    return front == WordTag::preposition || front == WordTag::subordinator || front == WordTag::adverb ||
           front == WordTag::gerund || (end == 1 && front == WordTag::conjunction);
  }

  // Returns true if the segment is an item of an enumeration: a noun phrase with a conjunction in or behind it.
  bool is_list(size_t begin, size_t end) const {
    if (!in_noun_phrase(tag(begin))) return false;
    for (size_t i = begin; i < std::min(end + 1, words_.size()); ++i)
      if (tag(i) == WordTag::conjunction) return true;
    return false;
  }

  // Where the noun phrase that begins at `i` ends; `i`: there is none.
  size_t noun_phrase_end(size_t i) const {
    if (i < words_.size() && tag(i) == WordTag::pronoun) return i + 1;
    size_t end = i;
    while (end < words_.size() &&
           (in_noun_phrase(tag(end)) ||
            (tag(end) == WordTag::adverb && end + 1 < words_.size() && tag(end + 1) == WordTag::adjective))) {
      if (end > i && tag(end) == WordTag::determiner) break;  // the next phrase
      ++end;
      if (words_[end - 1].comma || words_[end - 1].closes) break;
    }
    return end;
  }

  // Where the prepositional phrase at `i` ends, with the phrases that `of` attaches to it; `i`: there is none.
  size_t phrase_end(size_t i) const {
    const bool to_someone = tag(i) == WordTag::to && i + 1 < words_.size() &&
                            (tag(i + 1) == WordTag::determiner || tag(i + 1) == WordTag::pronoun ||
                             tag(i + 1) == WordTag::number || words_[i + 1].capitalized);
    if ((tag(i) != WordTag::preposition && !to_someone) || words_[i].comma) return i;
    size_t begin = i + 1;
    if (begin < words_.size() && (tag(begin) == WordTag::gerund || tag(begin) == WordTag::preposition)) ++begin;
    size_t end = noun_phrase_end(begin);
    if (end == i + 1) return i;
    while (end < words_.size() && words_[end].text == "of" && !words_[end - 1].comma) {
      const size_t more = noun_phrase_end(end + 1);
      if (more == end + 1) break;
      end = more;
    }
    return end;
  }

  void find_phrase(size_t i) {
    if (const size_t end = phrase_end(i); end > i) add(i, end);
  }

  // From the relative pronoun to a comma, or to the second finite verb, which is that of the main clause.
  void find_relative_clause(size_t i) {
    const bool after_noun = i > 0 && (tag(i - 1) == WordTag::noun || tag(i - 1) == WordTag::pronoun);
    const bool that = tag(i) == WordTag::that && i + 1 < words_.size() && is_finite(tag(i + 1));
    if (!after_noun || (tag(i) != WordTag::relative && !that)) return;
    add(i, clause_end(i + 1));
  }

  void find_adverbial_clause(size_t i) {
    if (i == 0 || tag(i) != WordTag::subordinator) return;  // at the beginning a comma ends it
    const size_t end = after_comma(i);
    if (has_finite(i, end)) return add(i, end);
    if (const size_t phrase = noun_phrase_end(i + 1); phrase > i + 1) add(i, phrase);  // "after the war"
  }

  // Returns true if a verb at `i` belongs to what is before it, adverbs left out: "has quickly gone", "sat and sang".
  bool continues_verb(size_t i) const {
    while (i > 0 && tag(i - 1) == WordTag::adverb) --i;
    return i > 0 && (tag(i - 1) == WordTag::auxiliary || tag(i - 1) == WordTag::to ||
                     tag(i - 1) == WordTag::conjunction || tag(i - 1) == WordTag::negation);
  }

  size_t clause_end(size_t i) const {
    bool verb = false;
    for (; i < words_.size(); ++i) {
      const bool continues = continues_verb(i);
      if (is_finite(tag(i)) && verb && !continues) return i;
      verb = verb || is_finite(tag(i));
      if (words_[i].comma) return i + 1;
    }
    return i;
  }

  // Adverbs, and adjectives before a noun.
  void find_single_word(size_t i) {
    if (tag(i) == WordTag::adverb) add(i, i + 1);
    if (tag(i) == WordTag::adjective && !words_[i].comma && noun_phrase_end(i) > i + 1) add(i, i + 1);
  }

  // A modifier that is the whole sentence has nothing to modify.
  void drop_whole_sentences() {
    std::erase_if(out_.modifiers, [&](const TokenRange& one) { return one.count == std::ssize(words_); });
  }

  // The words outside of all modifiers, in chunks: noun phrases, verbs, and the rest.
  void find_core() {
    std::vector<char> modifier(words_.size());
    for (const TokenRange& one : out_.modifiers) std::fill_n(modifier.begin() + one.first, one.count, char{1});
    for (size_t i = 0; i < words_.size(); ++i) {
      if (modifier[i]) continue;
      const bool same = i > 0 && !modifier[i - 1] && !out_.core.empty() && !words_[i - 1].comma &&
                        in_noun_phrase(tag(i)) == in_noun_phrase(tag(i - 1)) && tag(i) != WordTag::determiner &&
                        tag(i) != WordTag::conjunction;
      if (!same) out_.core.push_back({static_cast<int64_t>(i), 0});
      ++out_.core.back().count;
    }
  }

  const std::vector<TaggedWord> words_;
  Constituents out_;
};

}  // namespace

Constituents parse_english(std::span<const std::string> words) { return EnglishParser(tag_english(words)).parse(); }

}  // namespace millrace
