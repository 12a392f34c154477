// The `fields` part of a structure: named values between tags, in the order of the list.
//
//   {"type": "fields", "close": "</parameter>", "between": ["\n"], "end": "</function>", "fields": [
//     {"open": "<parameter=a>\n", "required": true},
//     {"open": "<parameter=b>\n", "content": {...}, "tail": "\n"}]}
//
//   <parameter=a>\n  free text  </parameter>\n  <parameter=b>\n  content  \n</parameter>\n  </function>
//
// A field without `content` is free text. Free text ends with `close` only if `close` is followed by one of `between`
// and the tag of a possible next field, or by `end`. The free text itself may therefore contain `close`.
//   head   a structure between `open` and the value; optional
//   tail   text between content and `close`; optional
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/json_rules.h"

namespace millrace {

struct FieldList {
  struct Field {
    std::string open, tail;
    bool required = false;
    std::optional<ExprId> head;
    std::optional<ExprId> content;  // nullopt: free text
  };
  std::string close, end;
  std::vector<std::string> between;
  std::vector<Field> fields;
};

// Reads all members except `head` and `content`. Errors: user; the message has the place.
Result<FieldList> read_field_list(const nlohmann::ordered_json& json, const std::string& where);

// Errors: user (a tag is empty, or part of another), unsupported (size).
Result<ExprId> compile_fields(GrammarSpec& spec, const FieldList& list, CompileBudget* budget);

}  // namespace millrace
