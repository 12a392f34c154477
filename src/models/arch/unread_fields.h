// Fields that no reader looked at. Most are harmless: names of tokens, training settings, notes of programs. Some
// change what the model computes; without them a model answers with other tokens and no error. A field with a name of
// the second kind is therefore refused by name, unless its value changes nothing or the name is known to be harmless.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/arch_spec.h"
#include "models/config_reader.h"

namespace millrace {

struct UnreadField {
  std::string path;
  std::string value;  // the first 60 bytes of its JSON
};

// The fields that no reader looked at and that may change what the model computes. Call it after all fields were read.
std::vector<UnreadField> unread_fields(ConfigReader& config, const ArchSpec& spec,
                                       std::span<const std::string_view> harmless);

// Call it after all fields were read into `spec`. `family`: for the message. `harmless`: names that change nothing in
// this family. Failures are stored in `config`.
void refuse_unread_fields(ConfigReader& config, const ArchSpec& spec, std::string_view family,
                          std::span<const std::string_view> harmless);

}  // namespace millrace
