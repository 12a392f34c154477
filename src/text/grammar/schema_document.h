// SchemaDocument: a parsed JSON Schema with the path and base URI of each part. It resolves references within the
// document. Nothing is fetched, so a reference to anything outside the document is an error.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/grammar/json_rules.h"

namespace millrace {

// Returns the member `key` of a JSON object; null: there is none.
inline const SchemaJson* member(const SchemaJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

class SchemaDocument {
 public:
  // Errors: user (not JSON; the message has the byte), unsupported (nested too deeply).
  Result<void> load(std::string_view text, int64_t most_depth);

  const SchemaJson& root() const { return root_; }
  bool draft_before_2019() const { return old_draft_; }  // true: siblings of $ref are ignored

  // Returns the JSON pointer of a part, such as "/properties/name"; "" for the root.
  const std::string& path(const SchemaJson& part) const;

  // Returns the target of `reference`, relative to `from`. Errors: unsupported (not in this document).
  Result<const SchemaJson*> resolve(const std::string& reference, const SchemaJson& from) const;

  // Resolves a $dynamicRef. Errors: unsupported (not in this document, or the target depends on the dynamic scope).
  Result<const SchemaJson*> resolve_dynamic(const std::string& reference, const SchemaJson& from) const;

  // Stores a schema that the compiler derived from the part `origin`, and assigns the path of `origin` to all its
  // parts. If an equal schema was derived from `origin` before, returns that one, so that results cached by address are
  // reused.
  const SchemaJson& adopt(SchemaJson made, const SchemaJson& origin);
  bool adopted(const SchemaJson& part) const { return adopted_.contains(&part); }

  // Returns a number that represents a part in derived schemas, so that the part need not be copied. linked() returns
  // the part of a number.
  uint64_t link(const SchemaJson& part);
  const SchemaJson& linked(const SchemaJson& number) const { return *links_[number.get<size_t>()]; }

 private:
  struct Place {
    std::string path;
    std::string base;  // base URI of references
  };
  void index(const SchemaJson& part, const std::string& path, std::string base, bool schema);
  void place_all(const SchemaJson& part, const Place& place);

  SchemaJson root_;
  bool old_draft_ = false, draft4_ = false;
  std::deque<SchemaJson> made_;
  std::unordered_set<const SchemaJson*> adopted_;
  std::unordered_map<const SchemaJson*, Place> places_;
  std::map<std::string, const SchemaJson*> addresses_;             // "base" and "base#anchor"
  std::map<std::string, std::vector<const SchemaJson*>> dynamic_;  // $dynamicAnchor: all parts with it, outermost first
  std::map<std::pair<const SchemaJson*, std::string>, const SchemaJson*> adoptions_;  // by origin and text
  std::vector<const SchemaJson*> links_;
  std::unordered_map<const SchemaJson*, uint64_t> link_of_;
};

}  // namespace millrace
