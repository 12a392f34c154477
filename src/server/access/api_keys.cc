#include "server/access/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "base/secret_memory.h"
#include "loader/json_check.h"
#include "server/json.h"

namespace millrace {
namespace {

constexpr size_t kMaxKeys = 10000;
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxKeyBytes = 1024;
constexpr int64_t kMaxCount = int64_t{1} << 50;

bool is_name(std::string_view text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !text.empty() && text.size() <= kMaxNameBytes && std::ranges::all_of(text, good);
}

bool read_digest(std::string_view hex, KeyDigest& out) {
  if (hex.size() != 2 * out.size()) return false;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

void wipe_texts(Json& json) {
  if (auto* text = json.get_ptr<Json::string_t*>()) return wipe(*text);
  if (json.is_structured())
    for (Json& one : json) wipe_texts(one);
}

// A text that is overwritten at the end.
struct Secret {
  std::string text;
  ~Secret() { wipe(text); }
};

// One key of the file; `where` names it in errors.
struct KeyReader {
  const Json& json;
  std::string where;

  Error wrong(const std::string& name, const std::string& why) const {
    return Error::user(fmt::format("{}: {} {}", where, name, why));
  }

  Result<void> text(const char* name, std::string& out) const {
    auto found = json.find(name);
    if (found == json.end()) return {};
    if (!found->is_string()) return wrong(name, "must be a string");
    out = found->get<std::string>();
    return {};
  }
  Result<void> count(const char* name, int64_t& out) const {
    auto found = json.find(name);
    if (found == json.end()) return {};
    const double number = found->is_number() ? found->get<double>() : -1;
    if (!found->is_number_integer() || !(number >= 0 && number <= static_cast<double>(kMaxCount)))
      return wrong(name, fmt::format("must be a whole number from 0 to {}; 0 is no limit", kMaxCount));
    out = found->get<int64_t>();
    return {};
  }
  Result<void> secret(KeyDigest& out) const {
    Secret key;
    std::string hex;
    MILLRACE_TRY_VOID(text("key", key.text));
    MILLRACE_TRY_VOID(text("key_sha256", hex));
    if (json.contains("key") == json.contains("key_sha256"))
      return wrong("key", "or key_sha256 is required, but not both");
    if (json.contains("key_sha256")) {
      if (!read_digest(hex, out)) return wrong("key_sha256", "must be 64 hexadecimal digits, as sha256sum prints them");
      return {};
    }
    if (key.text.empty() || key.text.size() > kMaxKeyBytes)
      return wrong("key", fmt::format("must have 1 to {} characters", kMaxKeyBytes));
    out = key_digest(key.text);
    return {};
  }
  Result<ApiKey> read() const;
};

Result<ApiKey> KeyReader::read() const {
  static const std::set<std::string> known = {
      "name",           "key",          "key_sha256", "role",  "weight",     "requests_per_minute", "tokens_per_minute",
      "tokens_per_day", "tokens_total", "streams",    "files", "file_bytes", "cache_group"};
  for (const auto& [name, value] : json.items())
    if (!known.contains(name)) return wrong("'" + name.substr(0, 100) + "'", "is not a setting of a key");
  ApiKey out;
  MILLRACE_TRY_VOID(text("name", out.name));
  if (!is_name(out.name))
    return wrong("name", fmt::format("must have 1 to {} letters, digits, '.', '_' or '-'", kMaxNameBytes));
  MILLRACE_TRY_VOID(secret(out.digest));
  std::string role = "user";
  MILLRACE_TRY_VOID(text("role", role));
  if (role != "user" && role != "admin") return wrong("role", "must be user or admin");
  out.admin = role == "admin";
  if (auto weight = json.find("weight"); weight != json.end()) {
    out.weight = weight->is_number() ? weight->get<double>() : 0;
    if (!(out.weight >= 1e-3 && out.weight <= 1e6)) return wrong("weight", "must be a number from 0.001 to 1e6");
  }
  MILLRACE_TRY_VOID(count("requests_per_minute", out.limits.requests_per_minute));
  MILLRACE_TRY_VOID(count("tokens_per_minute", out.limits.tokens_per_minute));
  MILLRACE_TRY_VOID(count("tokens_per_day", out.limits.tokens_per_day));
  MILLRACE_TRY_VOID(count("tokens_total", out.limits.tokens_total));
  MILLRACE_TRY_VOID(count("streams", out.limits.streams));
  MILLRACE_TRY_VOID(count("files", out.limits.files));
  MILLRACE_TRY_VOID(count("file_bytes", out.limits.file_bytes));
  MILLRACE_TRY_VOID(text("cache_group", out.cache_group));
  if (!out.cache_group.empty() && !is_name(out.cache_group)) return wrong("cache_group", "must be written like a name");
  return out;
}

Result<std::vector<ApiKey>> keys_of(const Json& json, const std::string& source) {
  const auto list = json.find("keys");
  if (list == json.end() || !list->is_array() || list->empty() || list->size() > kMaxKeys || json.size() != 1)
    return Error::user(fmt::format("{}: expected {{\"keys\": [...]}} with 1 to {} keys", source, kMaxKeys));
  std::vector<ApiKey> out;
  std::set<std::string> names;
  std::set<KeyDigest> digests;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& one = (*list)[i];
    std::string where = fmt::format("{}: key {}", source, i + 1);
    if (!one.is_object()) return Error::user(where + " must be an object");
    MILLRACE_TRY(ApiKey key, (KeyReader{one, where}.read()));
    if (!names.insert(key.name).second) return Error::user(fmt::format("{}: duplicate name '{}'", where, key.name));
    if (!digests.insert(key.digest).second)
      return Error::user(where + ": duplicate key, already used under another name");
    out.push_back(std::move(key));
  }
  return out;
}

}  // namespace

KeyDigest key_digest(std::string_view key) {
  KeyDigest out;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), out.data());
  return out;
}

bool same_digest(const KeyDigest& left, const KeyDigest& right) {
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

Result<std::vector<ApiKey>> parse_api_keys(std::string_view text, const std::string& source) {
  auto json = parse_json_object(text, source, {.keys = 64, .refuse_duplicates = true});
  if (!json.ok()) return Error::user(json.error().message);
  auto keys = keys_of(*json, source);
  wipe_texts(*json);
  return keys;
}

Result<std::string> read_secret_file(const std::string& path, size_t most_bytes) {
  // Unbuffered: no copy stays in a buffer of the library.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file || std::setvbuf(file.get(), nullptr, _IONBF, 0) != 0)
    return Error::corrupt(fmt::format("{}: cannot be read", path));
  std::string text(most_bytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return Error::corrupt(fmt::format("{}: cannot be read", path));
  if (text.size() > most_bytes) {
    wipe(text);
    return Error::corrupt(fmt::format("{}: is larger than {} bytes", path, most_bytes));
  }
  return text;
}

Result<KeysFile> read_api_keys(const std::string& path) {
  MILLRACE_TRY(std::string text, read_secret_file(path, kMaxKeysFileBytes));
  KeysFile out;
  auto keys = parse_api_keys(text, path);
  wipe(text);
  if (!keys.ok()) return Error::corrupt(keys.error().message);
  out.keys = std::move(*keys);
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0 && (about.st_mode & (S_IRGRP | S_IROTH | S_IWGRP | S_IWOTH)) != 0)
    out.warning = fmt::format("{}: is readable or writable by other users (mode {:03o}); use chmod 600", path,
                              about.st_mode & 0777);
  return out;
}

ApiKey plain_api_key(std::string_view key, size_t number) {
  ApiKey out;
  out.name = fmt::format("#{}", number);
  out.digest = key_digest(key);
  out.admin = true;
  return out;
}

}  // namespace millrace
