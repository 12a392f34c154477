// Tags the words of an English sentence with coarse parts of speech, by lists of closed-class words, by endings, and by
// the word before. Rules of thumb: enough to find constituents, not a trained tagger. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace millrace {

enum class WordTag {
  noun,  // the default, and every capitalized word inside a sentence
  determiner,
  pronoun,
  number,
  adjective,
  adverb,
  negation,
  preposition,
  to,
  conjunction,   // coordinating: and, or, but
  subordinator,  // because, while, if
  relative,      // who, which, where
  that,
  auxiliary,  // is, has, will
  verb,       // a finite verb or past participle
  gerund,     // a verb in -ing
};

struct TaggedWord {
  std::string text;  // lower case, without the marks around it
  WordTag tag = WordTag::noun;
  bool capitalized = false;
  bool opens = false;   // an opening bracket comes before it
  bool closes = false;  // a closing bracket comes after it
  bool comma = false;   // a comma, semicolon, colon or dash comes after it
};

// `words`: as they are written, with white space and marks. A word of marks alone is a noun with an empty text.
std::vector<TaggedWord> tag_english(std::span<const std::string> words);

}  // namespace millrace
