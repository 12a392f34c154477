#include "text/grammar/schema_document.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

const std::string kNowhere;

// RFC 3986 as used by schemas: absolute URIs, absolute paths, and names relative to the base.
std::string resolve_address(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  const size_t colon = reference.find(':');
  if (colon != std::string::npos && reference.find('/') > colon) return reference;
  const size_t authority = base.find("://");
  if (reference.front() == '/') {
    if (authority == std::string::npos) return reference;
    return base.substr(0, base.find('/', authority + 3)) + reference;
  }
  const size_t slash = base.rfind('/');
  if (slash == std::string::npos || (authority != std::string::npos && slash < authority + 3))
    return authority == std::string::npos ? reference : base + "/" + reference;
  return base.substr(0, slash + 1) + reference;
}

std::string escape_pointer(const std::string& key) {
  std::string out;
  for (char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

std::string unescape(std::string_view text) {
  std::string percent, out;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      percent += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      percent += text[i];
    }
  }
  for (size_t i = 0; i < percent.size(); ++i) {
    if (percent[i] == '~' && i + 1 < percent.size() && (percent[i + 1] == '0' || percent[i + 1] == '1'))
      out += percent[++i] == '0' ? '~' : '/';
    else
      out += percent[i];
  }
  return out;
}

const SchemaJson* follow(const SchemaJson* part, std::string_view pointer) {
  while (!pointer.empty() && part) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string key = unescape(pointer.substr(0, end));
    pointer.remove_prefix(end);
    if (part->is_object()) {
      auto found = part->find(key);
      part = found == part->end() ? nullptr : &*found;
    } else if (part->is_array()) {
      const bool number =
          !key.empty() && key.size() < 8 && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
      const size_t index = number ? std::stoul(key) : part->size();
      part = index < part->size() ? &(*part)[index] : nullptr;
    } else {
      part = nullptr;
    }
  }
  return part;
}

}  // namespace

Result<void> SchemaDocument::load(std::string_view text, int64_t most_depth) {
  int64_t depth = 0;
  bool reserved = false;  // keys reserved for derived schemas
  const SchemaJson::parser_callback_t watch = [&](int d, SchemaJson::parse_event_t event, SchemaJson& part) {
    depth = std::max<int64_t>(depth, d);
    if (event == SchemaJson::parse_event_t::key) reserved |= part.get_ref<const std::string&>().starts_with('\x01');
    return d <= most_depth;
  };
  if (!SchemaJson::accept(text)) return Error::user("JSON schema: is not valid JSON");
  root_ = SchemaJson::parse(text, watch, false);
  if (depth > most_depth) return Error::unsupported(fmt::format("JSON schema: nested more than {} deep", most_depth));
  if (reserved)
    return Error::unsupported("JSON schema: keys that begin with the control character U+0001 are not supported");
  std::string base = "millrace:/schema";
  if (root_.is_object()) {
    if (auto schema = root_.find("$schema"); schema != root_.end() && schema->is_string()) {
      const std::string draft = schema->get<std::string>();
      for (const char* old : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"})
        old_draft_ |= draft.find(old) != std::string::npos;
      draft4_ = draft.find("draft-03") != std::string::npos || draft.find("draft-04") != std::string::npos;
    }
  }
  addresses_[base] = &root_;
  index(root_, "", base, true);
  return {};
}

void SchemaDocument::index(const SchemaJson& part, const std::string& path, std::string base, bool schema) {
  if (schema && part.is_object() && !(old_draft_ && part.contains("$ref"))) {
    if (auto id = part.find(draft4_ ? "id" : "$id"); id != part.end() && id->is_string()) {
      std::string address = id->get<std::string>();
      const size_t hash = address.find('#');
      if (hash != std::string::npos && hash + 1 < address.size())
        addresses_.try_emplace(base + address.substr(hash), &part);
      address = address.substr(0, hash);
      if (!address.empty()) {
        base = resolve_address(base, address);
        addresses_.try_emplace(base, &part);
      }
    }
    if (auto anchor = part.find("$dynamicAnchor"); anchor != part.end() && anchor->is_string())
      dynamic_[anchor->get<std::string>()].push_back(&part);
    for (const char* key : {"$anchor", "$dynamicAnchor"})
      if (auto anchor = part.find(key); anchor != part.end() && anchor->is_string())
        addresses_.try_emplace(base + "#" + anchor->get<std::string>(), &part);
  }
  places_[&part] = {path, base};
  if (!part.is_structured()) return;
  size_t i = 0;
  for (const auto& [key, child] : part.items()) {
    const std::string name = part.is_array() ? std::to_string(i++) : escape_pointer(key);
    // Their contents are data, or names that only look like keywords.
    const bool names = schema && part.is_object() &&
                       (key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions" ||
                        key == "dependentSchemas" || key == "dependencies");
    const bool data =
        schema && part.is_object() && (key == "enum" || key == "const" || key == "default" || key == "examples");
    if (names && child.is_object()) {
      places_[&child] = {path + "/" + name, base};
      for (const auto& [inner, value] : child.items())
        index(value, path + "/" + name + "/" + escape_pointer(inner), base, true);
    } else {
      index(child, path + "/" + name, base, schema && !data);
    }
  }
}

const std::string& SchemaDocument::path(const SchemaJson& part) const {
  auto found = places_.find(&part);
  return found == places_.end() ? kNowhere : found->second.path;
}

Result<const SchemaJson*> SchemaDocument::resolve(const std::string& reference, const SchemaJson& from) const {
  const size_t hash = std::min(reference.find('#'), reference.size());
  auto place = places_.find(&from);
  const std::string base = resolve_address(place == places_.end() ? "" : place->second.base, reference.substr(0, hash));
  const std::string fragment = hash < reference.size() ? reference.substr(hash + 1) : "";
  const SchemaJson* target = nullptr;
  if (auto found = addresses_.find(base); found != addresses_.end()) {
    if (fragment.empty() || fragment.front() == '/') target = follow(found->second, fragment);
  }
  if (auto found = addresses_.find(base + "#" + fragment); found != addresses_.end() && !fragment.empty())
    target = found->second;
  if (!target)
    return Error::unsupported(
        fmt::format("JSON schema: {}: $ref '{}' has no target in this schema, and remote schemas are not fetched",
                    path(from), reference));
  return target;
}

void SchemaDocument::place_all(const SchemaJson& part, const Place& place) {
  places_[&part] = place;
  adopted_.insert(&part);
  if (part.is_structured())
    for (const auto& child : part) place_all(child, place);
}

// Resolves to the outermost part in the dynamic scope with the anchor. The whole document is always in scope; for other
// parts that is unknown at compile time.
Result<const SchemaJson*> SchemaDocument::resolve_dynamic(const std::string& reference, const SchemaJson& from) const {
  MILLRACE_TRY(const SchemaJson* target, resolve(reference, from));
  const size_t hash = reference.find('#');
  const std::string name = hash == std::string::npos ? "" : reference.substr(hash + 1);
  auto anchors = dynamic_.find(name);
  if (anchors == dynamic_.end() || !target->is_object() || target->value("$dynamicAnchor", SchemaJson()) != name)
    return target;
  const std::string& whole = places_.at(&root_).base;
  for (const SchemaJson* part : anchors->second)
    if (places_.at(part).base == whole) return part;
  if (anchors->second.size() == 1) return target;
  return Error::unsupported(fmt::format("JSON schema: {}: $dynamicRef '{}' is ambiguous: it has {} possible targets",
                                        path(from), reference, anchors->second.size()));
}

uint64_t SchemaDocument::link(const SchemaJson& part) {
  auto [entry, fresh] = link_of_.try_emplace(&part, links_.size());
  if (fresh) links_.push_back(&part);
  return entry->second;
}

const SchemaJson& SchemaDocument::adopt(SchemaJson made, const SchemaJson& origin) {
  auto [entry, fresh] =
      adoptions_.try_emplace({&origin, made.dump(-1, ' ', false, SchemaJson::error_handler_t::replace)}, nullptr);
  if (!fresh) return *entry->second;
  made_.push_back(std::move(made));
  entry->second = &made_.back();
  auto found = places_.find(&origin);
  place_all(made_.back(), found == places_.end() ? Place{} : Place(found->second));
  return made_.back();
}

}  // namespace millrace
