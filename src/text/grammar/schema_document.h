// SchemaDocument: a JSON Schema's text, with the place and base address of each of its parts, and its references
// resolved. Nothing is ever fetched: a reference leads to a part of this document or is an error.
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

// Null where there is none.
inline const SchemaJson* member(const SchemaJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

class SchemaDocument {
 public:
  // Errors: user (not JSON, with the byte), unsupported (nested too deeply).
  Result<void> load(std::string_view text, int64_t most_depth);

  const SchemaJson& root() const { return root_; }
  bool draft_before_2019() const { return old_draft_; }  // where what stands beside $ref does not count

  // Where a part stands, as a JSON pointer: "/properties/name"; "" is the whole.
  const std::string& path(const SchemaJson& part) const;

  // The part that `reference`, written in `from`, leads to. Errors: unsupported (not in this document).
  Result<const SchemaJson*> resolve(const std::string& reference, const SchemaJson& from) const;

  // The same for $dynamicRef. Errors: unsupported too, where it depends on the way that led here.
  Result<const SchemaJson*> resolve_dynamic(const std::string& reference, const SchemaJson& from) const;

  // Keeps a schema that the compiler made from the part `origin`; its parts are taken to stand there. The same one when
  // the same was made of it before, so that what is worked out for it is found again.
  const SchemaJson& adopt(SchemaJson made, const SchemaJson& origin);
  bool adopted(const SchemaJson& part) const { return adopted_.contains(&part); }

  // A part as a number, for schemas that the compiler makes to stand for it without a copy.
  uint64_t link(const SchemaJson& part);
  const SchemaJson& linked(const SchemaJson& number) const { return *links_[number.get<size_t>()]; }

 private:
  struct Place {
    std::string path;
    std::string base;  // address that references are relative to
  };
  void index(const SchemaJson& part, const std::string& path, std::string base, bool schema);
  void place_all(const SchemaJson& part, const Place& place);

  SchemaJson root_;
  bool old_draft_ = false, draft4_ = false;
  std::deque<SchemaJson> made_;
  std::unordered_set<const SchemaJson*> adopted_;
  std::unordered_map<const SchemaJson*, Place> places_;
  std::map<std::string, const SchemaJson*> addresses_;  // "base" and "base#anchor"
  std::map<std::string, std::vector<const SchemaJson*>>
      dynamic_;  // $dynamicAnchor: all parts that have it, the outermost first
  std::map<std::pair<const SchemaJson*, std::string>, const SchemaJson*> adoptions_;  // by origin and text
  std::vector<const SchemaJson*> links_;
  std::unordered_map<const SchemaJson*, uint64_t> link_of_;
};

}  // namespace millrace
