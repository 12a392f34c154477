// Words for generated texts: common English words, and made-up names of people and places.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lab/lab_random.h"

namespace millrace::lab {

using Words = std::span<const std::string_view>;

extern const Words kColors, kObjects, kAnimals, kFoods, kJobs, kDays, kAdjectives;

std::string name_word(LabRandom& random);  // a made-up name of a person, town or country: "Velin"
std::string toy_word(LabRandom& random);   // a made-up word: "kvab"
std::string filler_sentence(LabRandom& random);

std::string with_article(std::string_view words);  // "a dog", "an old dog"
std::string numbered(int64_t number);              // the number in digits
std::string capitals(std::string_view text);
// Returns "a, b and c".
std::string enumeration(const std::vector<std::string>& parts);

// Appends filler sentences, with a space between them, until `text` has about `length` characters.
void add_filler(LabRandom& random, int64_t length, std::string& text);

// Returns a text of about `length` characters: the facts in order, at random places between filler sentences.
std::string hide_facts(LabRandom& random, const std::vector<std::string>& facts, int64_t length);

}  // namespace millrace::lab
