#include "hub/repository.h"

#include <fmt/format.h>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "hub/hub_cache.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFiles = 100'000;
constexpr int64_t kMaxBytes = int64_t{1} << 50;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t size_of(const Json& object) {
  const auto found = object.find("size");
  if (found == object.end() || !found->is_number_integer()) return -1;
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(kMaxBytes)) return -1;
  return found->get<int64_t>();
}

}  // namespace

std::string in_url(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Result<RemoteRepository> parse_repository(const std::string& text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return Error::corrupt("hub: the file list is not a JSON object");
  RemoteRepository out;
  out.commit = text_of(json, "sha");
  if (out.commit.size() != 40 || !is_hash(out.commit)) return Error::corrupt("hub: the file list has no valid commit");
  const auto list = json.find("siblings");
  if (list == json.end() || !list->is_array() || list->size() > kMaxFiles)
    return Error::corrupt("hub: the file list is missing or too long");
  for (const Json& one : *list) {
    if (!one.is_object()) return Error::corrupt("hub: the file list contains an invalid entry");
    RemoteFile file{.name = text_of(one, "rfilename"), .size = size_of(one), .hash = text_of(one, "blobId")};
    if (!is_safe_path(file.name))
      return Error::corrupt(fmt::format("hub: the file list contains the unsafe path '{}'", file.name.substr(0, 200)));
    if (const auto lfs = one.find("lfs"); lfs != one.end() && lfs->is_object()) {
      file.hash = text_of(*lfs, "sha256");
      if (const int64_t size = size_of(*lfs); size >= 0) file.size = size;
    }
    if (!is_hash(file.hash) || file.size < 0 || file.size > kMaxBytes)
      return Error::corrupt(fmt::format("hub: the file list has no valid size or hash of {}", file.name));
    out.files.push_back(std::move(file));
  }
  return out;
}

}  // namespace millrace
