// The built-in dialects (registered in builtin.cc) and the helpers that they share.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <utility>

#include "text/tools/tool_dialect.h"

namespace millrace {

extern const ToolDialect kDeepseekTools;
extern const ToolDialect kDeepseekNamedTools;
extern const ToolDialect kGemmaTools;
extern const ToolDialect kGlmTools;
extern const ToolDialect kGraniteTools;
extern const ToolDialect kHarmonyTools;
extern const ToolDialect kHermesTools;
extern const ToolDialect kKimiTools;
extern const ToolDialect kLfmTools;
extern const ToolDialect kLlamaTools;
extern const ToolDialect kMinimaxTools;
extern const ToolDialect kMistralTools;
extern const ToolDialect kMistralArgsTools;
extern const ToolDialect kNemotronTools;
extern const ToolDialect kQwenXmlTools;

constexpr size_t kLongestToolName = 512;  // maximum bytes of a tool's name; a longer name is treated as text

// Finds the end of a JSON object or list in a byte stream.
class JsonNesting {
 public:
  // Returns true at the bracket that closes the first opening bracket.
  bool push(char c) {
    if (in_string_) {
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        in_string_ = false;
      return false;
    }
    if (c == '"')
      in_string_ = true;
    else if (c == '{' || c == '[')
      ++depth_;
    else if (c == '}' || c == ']')
      return --depth_ == 0;
    return false;
  }

 private:
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

// Incremental parser of a call written as a JSON object, {"name": "f", "arguments": {...}}. Keys may be in any order,
// and "parameters" is accepted instead of "arguments". Arguments in a JSON string that contains JSON are unwrapped.
class JsonCall {
 public:
  // Parses one byte and appends complete pieces to `out`. Returns false if this byte cannot follow; pieces emitted so
  // far remain valid.
  bool push(char c, AnswerPieces& out);
  bool done() const { return place_ == Place::end; }
  bool begun() const { return named_; }              // the call's name was emitted
  const std::string& text() const { return text_; }  // all bytes so far

 private:
  enum class Place { begin, key_or_end, key, in_key, colon, value, in_text, in_nested, in_plain, comma, end };
  bool value_ended(AnswerPieces& out);
  bool take_plain(char c, AnswerPieces& out);
  void take_argument(char c, AnswerPieces& out);

  Place place_ = Place::begin;
  std::string text_, key_, value_, arguments_;  // arguments_: buffered until the name is known
  JsonNesting nesting_;
  bool escaped_ = false, named_ = false, has_arguments_ = false, streams_ = false;
};

// Returns one tag {begin, content, end} per tool, for calls written as `before` NAME `between` ARGUMENTS `behind`. The
// content is the tool's schema.
nlohmann::ordered_json call_tags(std::span<const Tool> tools, std::string_view before, std::string_view between,
                                 std::string_view behind);
// Returns a structure of the tags after a trigger in free text, or without free text if calls are required.
nlohmann::ordered_json tagged_calls(nlohmann::ordered_json tags, std::string_view trigger, std::string_view separator,
                                    const ToolChoice& wish);

// Parses free text up to a trigger. Holds back a possible prefix of the trigger, and white space, which is dropped
// before a call.
class FreeText {
 public:
  explicit FreeText(std::string_view trigger) : trigger_(trigger) {}
  bool push(char c, AnswerPieces& out);  // true: the trigger is complete
  void finish(AnswerPieces& out);
  void after_call() { called_ = true; }  // drops white space after calls

 private:
  void let_go(size_t bytes, AnswerPieces& out);
  std::string_view trigger_;
  std::string space_, held_;
  bool called_ = false;
};

// Recognizes the tag behind a call, which models may leave out. White space before the tag is dropped.
class ClosingTag {
 public:
  explicit ClosingTag(std::string_view tag) : tag_(tag) {}
  // Returns false if the tag is complete or cannot follow. The bytes of take() are then text.
  bool push(char c);
  // Returns the bytes that are held back, and forgets them.
  std::string take() { return std::exchange(held_, {}); }

 private:
  std::string_view tag_;
  std::string held_;
};

// Return structures of one literal, and of several parts in sequence.
nlohmann::ordered_json literal_text(std::string_view text);
nlohmann::ordered_json sequence_of(std::vector<nlohmann::ordered_json> parts);

// Notes the keywords of a schema that are not enforced on a part that is not written as JSON.
void name_weakened(const Tool& tool, const nlohmann::ordered_json& schema, const std::string& place,
                   std::initializer_list<const char*> keywords, nlohmann::ordered_json& part);
// Keywords of an object's schema that are not enforced if the object is not written as JSON.
inline constexpr std::initializer_list<const char*> kObjectKeywords = {"$ref",
                                                                       "allOf",
                                                                       "anyOf",
                                                                       "oneOf",
                                                                       "not",
                                                                       "if",
                                                                       "patternProperties",
                                                                       "propertyNames",
                                                                       "minProperties",
                                                                       "maxProperties",
                                                                       "dependentRequired",
                                                                       "dependentSchemas",
                                                                       "dependencies"};
// Returns a structure of JSON text that a part of the tool's schema allows.
nlohmann::ordered_json json_value(const Tool& tool, const nlohmann::ordered_json& schema);
// Returns the definitions that parts of the tool's schema may refer to, for the member `definitions` of a structure.
nlohmann::ordered_json definitions_of(const Tool& tool);

// The notation of an object's properties, which are separated. Properties that are not required may be left out.
struct ListedProperties {
  std::string_view separator;
  std::string open, key_end, close;
  bool sorted = false;  // by their names, and not in the order of the schema
  // Returns the structure of one property's value.
  std::function<nlohmann::ordered_json(const std::string& key, const nlohmann::ordered_json& schema)> value;
};
// Returns a structure whose size is linear in the schema's.
nlohmann::ordered_json listed_properties(const nlohmann::ordered_json& schema, const ListedProperties& form);

// The tags of a call whose parameters have individual tags. Strings are verbatim, other values JSON (parameters.cc).
struct ParameterTags {
  std::string_view open, open_end;   // around KEY
  nlohmann::ordered_json head;       // structure between the opening tag and the value; null: nothing
  std::string_view line;             // after a value that is JSON or one of an enum
  std::string_view close;            // after every value
  std::vector<const char*> between;  // texts that may be between `close` and the next tag
  std::string_view end;              // end of the call
};
// Returns the structure of all parameters and the end of the call.
nlohmann::ordered_json parameters_structure(const Tool& tool, const ParameterTags& tags);
// Emits a call with ParameterTags as pieces of a JSON object, one parameter at a time.
class ParameterCall {
 public:
  explicit ParameterCall(std::span<const Tool> tools) : tools_(tools.begin(), tools.end()) {}
  void begin(std::string_view name, AnswerPieces& out);
  void add(const std::string& key, const std::string& value, AnswerPieces& out);
  void end(AnswerPieces& out);
  // Returns true if a parameter of this name may follow `current`: the tool declares it and it has not occurred, or the
  // tool declares none.
  bool may_follow(std::string_view current, std::string_view key) const;

 private:
  const std::vector<Tool> tools_;
  const Tool* tool_ = nullptr;  // null: unknown tool
  std::vector<std::string> keys_;
};

// Collects the value of one parameter. A closing tag ends the value only if another parameter or the end of the call
// follows; otherwise, it belongs to the value.
class ParameterValue {
 public:
  struct Tags {
    std::string_view close, open, open_end;
    std::array<std::string_view, 2> end;  // the two consecutive tags that end a call
  };
  explicit ParameterValue(const Tags& tags) : tags_(tags) {}

  void begin(std::string_view key) {
    key_ = key;
    text_.clear();
    candidate_ = std::string::npos;
  }
  // Returns true when the value is complete.
  bool push(char c, const ParameterCall& call);
  // Called at the end of the answer. Returns true if a closing tag was found; the last closing tag then ends the value.
  bool finish();
  // Returns the value, once it is complete.
  std::string value() const { return text_.substr(0, candidate_ - tags_.close.size()); }
  std::string behind() const { return text_.substr(candidate_); }  // the text after the closing tag

 private:
  enum class Verdict { wait, ends, content };
  Verdict next_parameter(std::string_view rest, const ParameterCall& call) const;
  Verdict call_end(std::string_view rest) const;
  Verdict verdict(const ParameterCall& call) const;

  Tags tags_;
  std::string key_, text_;
  size_t candidate_ = std::string::npos;  // end of a closing tag that may end the value; npos: none
};

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
inline std::string_view without_space(std::string_view text) {
  while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace millrace
