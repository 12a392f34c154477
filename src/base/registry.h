// Registry<Member>: the members of one family of techniques, in the order in which users see them. A member is a
// factory or a record. It is one file plus one entry in its folder's builtin.cc; there are no static constructors.
// `millrace techniques` and the live view list the registries in families.h of src/run/.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/technique.h"

namespace millrace {

template <typename Member>
class Registry {
 public:
  struct Entry {
    TechniqueInfo info;
    Member member;
  };

  Registry(const FamilyFacts& facts, std::vector<Entry> entries) : entries_(std::move(entries)) {
    for (Entry& entry : entries_) fill(entry.info, facts);
    for (const Entry& entry : entries_) members_.push_back(entry.member);
  }
  // Variant for pointers to records. A record has the members `name` and `summary`, and optionally `paper`, `loss`,
  // `test` and `proof`.
  Registry(std::string_view family, const FamilyFacts& facts, std::initializer_list<Member> records)
      : Registry(facts, describe(family, records)) {}

  const std::vector<Entry>& entries() const { return entries_; }
  std::span<const Member> members() const { return members_; }
  // Returns null if there is no such member.
  const Entry* find(std::string_view name) const {
    for (const Entry& entry : entries_)
      if (entry.info.name == name) return &entry;
    return nullptr;
  }
  // Returns "a, b, c", for messages.
  std::string names() const {
    std::string out;
    for (const Entry& entry : entries_) out += (out.empty() ? "" : ", ") + entry.info.name;
    return out;
  }
  std::vector<TechniqueInfo> infos() const {
    std::vector<TechniqueInfo> out;
    for (const Entry& entry : entries_) out.push_back(entry.info);
    return out;
  }

 private:
  static std::vector<Entry> describe(std::string_view family, std::initializer_list<Member> records) {
    std::vector<Entry> out;
    for (const Member& record : records) {
      TechniqueInfo info;
      info.family = family;
      info.name = record->name;
      info.summary = record->summary;
      if constexpr (requires { record->paper; }) info.paper = Paper(record->paper);
      if constexpr (requires { record->loss; }) info.loss = record->loss;
      if constexpr (requires { record->test; }) info.test = record->test;
      if constexpr (requires { record->proof; }) info.proof = record->proof;
      out.push_back({std::move(info), record});
    }
    return out;
  }

  std::vector<Entry> entries_;
  std::vector<Member> members_;
};

}  // namespace millrace
