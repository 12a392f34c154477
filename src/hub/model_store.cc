#include "hub/model_store.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "base/json_text.h"
#include "base/publish.h"
#include "hub/file_choice.h"
#include "hub/short_names.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using StoreJson = nlohmann::ordered_json;

constexpr const char* kDescription = "millrace.json";
constexpr const char* kDraftFolder = "draft";  // beside the files of the model that it drafts for
constexpr size_t kMaxDescriptionBytes = size_t{16} << 20;
constexpr auto kBlobAge = std::chrono::hours(24);  // an upload that no model uses is deleted after this time

fs::path default_store() {
  for (const auto& [name, rest] : {std::pair{"MILLRACE_MODELS", ""},
                                   {"XDG_DATA_HOME", "millrace/models"},
                                   {"HOME", ".local/share/millrace/models"}})
    if (const char* value = std::getenv(name); value && *value) return *rest ? fs::path(value) / rest : fs::path(value);
  return "/var/lib/millrace/models";
}

bool is_name_part(std::string_view text) {
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
                  c == '_';
         });
}

int64_t unix_time(fs::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

int64_t modified(const fs::path& path) {
  std::error_code failed;
  const auto time = fs::last_write_time(path, failed);
  return failed ? 0 : unix_time(time);
}

// Counts links of one file once.
int64_t total_bytes(const std::vector<std::string>& files) {
  int64_t sum = 0;
  std::set<std::pair<dev_t, ino_t>> counted;
  for (const std::string& file : files) {
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0 && counted.insert({status.st_dev, status.st_ino}).second)
      sum += static_cast<int64_t>(status.st_size);
  }
  return sum;
}

// All files of a model, with its adapters and its draft.
std::vector<std::string> all_files(const StoredModel& model) {
  std::vector<std::string> all = model.files;
  all.insert(all.end(), model.about.adapters.begin(), model.about.adapters.end());
  all.insert(all.end(), model.draft_files.begin(), model.draft_files.end());
  return all;
}

// The name of a model's file in the store. The only file of a model is GGUF also where its name does not say so.
std::string stored_file_name(const std::vector<std::string>& paths, const std::string& path) {
  const std::string own = fs::path(path).filename().string();
  const bool known = own.ends_with(".gguf") || own.ends_with(".safetensors");
  return paths.size() == 1 && !known ? own + ".gguf" : own;
}

Error disk_error(const fs::path& path, const std::string& what) {
  return Error::resource(fmt::format("{}: {}", path.string(), what));
}

// A hard link where the file system has them: the model then takes no further space.
Result<void> link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  const fs::path real = fs::canonical(from, failed);
  if (failed) return Error::corrupt(fmt::format("{}: no such file", from.string()));
  fs::create_directories(to.parent_path(), failed);
  fs::create_hard_link(real, to, failed);
  if (!failed) return {};
  fs::copy_file(real, to, failed);
  if (failed) return disk_error(to, failed.message());
  return {};
}

std::string store_text(const StoreJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::string> store_texts(const StoreJson& json, const char* key) {
  std::vector<std::string> out;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return out;
  for (const StoreJson& one : *found)
    if (one.is_string()) out.push_back(one.get<std::string>());
  return out;
}

std::vector<std::pair<std::string, std::string>> store_pairs(const StoreJson& json, const char* key) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return out;
  for (const StoreJson& one : *found)
    if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string())
      out.emplace_back(one[0].get<std::string>(), one[1].get<std::string>());
  return out;
}

StoreJson pairs_json(const std::vector<std::pair<std::string, std::string>>& pairs) {
  auto out = StoreJson::array();
  for (const auto& [first, second] : pairs) out.push_back(StoreJson::array({first, second}));
  return out;
}

// The tag of a GGUF file in the cache: its quantization if choose_files() finds the file by it, otherwise its name.
std::string tag_of(const std::vector<std::string>& files, const std::string& main) {
  for (const char* tag :
       {"F32",    "F16",    "BF16",   "Q8_0",    "Q6_K", "Q6_K_L", "Q5_K_M", "Q5_K_S", "Q5_K_L", "Q5_0",
        "Q5_1",   "Q4_K_M", "Q4_K_S", "Q4_K_L",  "Q4_0", "Q4_1",   "IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M",
        "Q3_K_S", "IQ3_M",  "IQ3_XS", "IQ3_XXS", "Q2_K", "Q2_K_L", "IQ2_M",  "MXFP4"}) {
    const auto choice = choose_files(files, tag);
    if (choice.ok() && choice->main == main) return tag;
  }
  return main;
}

}  // namespace

struct ModelStore::Place {
  std::string name, tag;  // "team/model", "latest"

  static std::optional<Place> of(std::string_view text) {
    const std::string name = canonical_model_name(text);
    if (!is_model_name(name)) return std::nullopt;
    const size_t colon = name.find(':');
    return colon == std::string::npos ? Place{name, "latest"} : Place{name.substr(0, colon), name.substr(colon + 1)};
  }
  std::string text() const { return tag == "latest" ? name : name + ":" + tag; }
};

bool is_model_name(std::string_view name) {
  if (const size_t colon = name.find(':'); colon != std::string_view::npos) {
    if (!is_name_part(name.substr(colon + 1))) return false;
    name = name.substr(0, colon);
  }
  for (int parts = 1;; ++parts) {
    const size_t slash = name.find('/');
    if (parts > 3 || !is_name_part(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

int64_t disk_bytes(const std::vector<StoredModel>& models) {
  std::vector<std::string> all;
  for (const StoredModel& model : models) {
    const std::vector<std::string> own = all_files(model);
    all.insert(all.end(), own.begin(), own.end());
  }
  return total_bytes(all);
}

std::string canonical_model_name(std::string_view name) {
  for (const std::string_view prefix : {"hf:", "hf.co/", "huggingface.co/"})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (name.ends_with(":latest")) name.remove_suffix(7);
  return std::string(name);
}

std::vector<std::string> files_of_model(const std::string& path) {
  std::error_code failed;
  std::vector<std::string> out;
  if (fs::is_directory(path, failed)) {
    std::vector<std::string> names;
    for (fs::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed))
      if (at->is_regular_file(failed) && at->path().extension() != ".gguf")
        names.push_back(at->path().filename().string());
    const auto choice = choose_files(names, "");
    if (choice.ok() && choice->main.empty())
      for (const std::string& name : choice->files) out.push_back((fs::path(path) / name).string());
    return out;
  }
  if (!fs::is_regular_file(path, failed)) return out;
  const fs::path file(path);
  std::vector<std::string> names;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    names.push_back(at->path().filename().string());
  const auto choice = choose_files(names, file.filename().string());
  if (!choice.ok()) return {path};
  for (const std::string& name : choice->files) out.push_back((folder / name).string());
  return out;
}

ModelStore::ModelStore(fs::path folder, std::string cache)
    : folder_(folder.empty() ? default_store() : std::move(folder)), cache_(std::move(cache)) {}

fs::path ModelStore::model_folder(const Place& place) const { return folder_ / "names" / place.name / place.tag; }

fs::path ModelStore::use_file(std::string_view name) const {
  std::string file(name);
  for (size_t at = 0; (at = file.find('/', at)) != std::string::npos;) file.replace(at, 1, "%2F");
  return folder_ / "used" / file;
}

int64_t ModelStore::last_use(const std::string& name) const { return modified(use_file(name)); }

void ModelStore::note_use(std::string_view name) const {
  const auto model = find(name);
  if (!model) return;
  const fs::path path = use_file(model->name);
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream(path, std::ios::trunc).flush();
}

std::optional<StoredModel> ModelStore::read(const Place& place) const {
  const fs::path folder = model_folder(place), path = folder / kDescription;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxDescriptionBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const StoreJson json = text.size() > kMaxDescriptionBytes ? StoreJson() : parse_json<StoreJson>(text);
  if (!json.is_object()) return std::nullopt;
  StoredModel out{.name = place.text(), .path = store_text(json, "built_in")};
  out.about = {.from = store_text(json, "from"),
               .more_from = {},
               .draft = store_text(json, "draft"),
               .chat_template = store_text(json, "template"),
               .system = store_text(json, "system"),
               .license = store_text(json, "license"),
               .parameters = store_pairs(json, "parameters"),
               .messages = store_pairs(json, "messages"),
               .adapters = {},
               .kept = store_pairs(json, "kept"),
               .notes = {}};
  for (const std::string& one : store_texts(json, "adapters"))
    if (is_safe_path(one)) out.about.adapters.push_back((folder / one).string());
  const auto files = store_texts(json, "files");
  for (const std::string& one : files)
    if (is_safe_path(one)) out.files.push_back((folder / one).string());
  for (const std::string& one : store_texts(json, "draft_files"))
    if (is_safe_path(one)) out.draft_files.push_back((folder / kDraftFolder / one).string());
  if (!out.draft_files.empty())
    out.about.draft =
        out.draft_files.front().ends_with(".gguf") ? out.draft_files.front() : (folder / kDraftFolder).string();
  if (out.path.empty()) {
    if (out.files.empty()) return std::nullopt;
    out.path = out.files.front().ends_with(".gguf") ? out.files.front() : folder.string();
  }
  out.bytes = total_bytes(all_files(out));
  out.created = modified(path);
  out.used = last_use(out.name);
  return out;
}

std::optional<StoredModel> ModelStore::find(std::string_view name) const {
  const auto place = Place::of(name);
  if (place) {
    if (auto model = read(*place)) return model;
  }
  if (auto model = find_cached(name)) return model;
  const auto model = find_short_name(name);
  return model.ok() && *model ? find_cached(**model) : std::nullopt;
}

std::optional<StoredModel> ModelStore::find_cached(std::string_view name) const {
  const auto hub = parse_hub_name(canonical_model_name(name));
  if (!hub.ok()) return std::nullopt;
  const auto commit = cache_.commit_of(hub->repository, "main");
  if (!commit) return std::nullopt;
  const auto files = cache_.files(hub->repository, *commit);
  const auto choice = choose_files(files, hub->wanted);
  if (!choice.ok()) return std::nullopt;
  const fs::path snapshot = cache_.snapshot(hub->repository, *commit);
  StoredModel out{.name = hub->repository, .path = snapshot.string(), .cached = true};
  if (!choice->main.empty()) {
    out.name += ":" + tag_of(files, choice->main);
    out.path = (snapshot / choice->main).string();
  }
  out.about.from = "hf:" + out.name;
  for (const std::string& file : choice->files) out.files.push_back((snapshot / file).string());
  out.bytes = total_bytes(out.files);
  out.created = modified(out.files.front());
  out.used = last_use(out.name);
  return out;
}

std::vector<StoredModel> ModelStore::list_cached() const {
  std::vector<StoredModel> out;
  std::error_code failed;
  for (fs::directory_iterator at(cache_.folder(), failed), end; !failed && at != end; at.increment(failed)) {
    std::string repository = at->path().filename().string();
    if (!repository.starts_with("models--")) continue;
    repository.erase(0, 8);
    const size_t dashes = repository.find("--");
    if (dashes == std::string::npos) continue;
    repository.replace(dashes, 2, "/");
    const auto commit = cache_.commit_of(repository, "main");
    if (!commit) continue;
    std::set<std::string> names;
    for (const std::string& file : cache_.files(repository, *commit))
      if (file.ends_with(".gguf"))
        if (auto model = find_cached(repository + ":" + file); model && names.insert(model->name).second)
          out.push_back(std::move(*model));
    if (!names.empty()) continue;
    if (auto model = find_cached(repository)) out.push_back(std::move(*model));
  }
  return out;
}

std::vector<StoredModel> ModelStore::list() const {
  std::vector<StoredModel> out;
  const fs::path names = folder_ / "names";
  std::error_code failed;
  for (fs::recursive_directory_iterator at(names, failed), end; !failed && at != end; at.increment(failed)) {
    if (at.depth() > 4 || at->path().filename() != kDescription) continue;
    const fs::path folder = at->path().parent_path();
    const std::string name = folder.parent_path().lexically_relative(names).string();
    if (auto model = read({name, folder.filename().string()})) out.push_back(std::move(*model));
  }
  for (StoredModel& model : list_cached())
    if (std::ranges::find(out, model.name, &StoredModel::name) == out.end()) out.push_back(std::move(model));
  std::ranges::sort(out, {}, &StoredModel::name);
  return out;
}

Result<void> ModelStore::create(std::string_view name, const ModelRecipe& recipe) const {
  const auto place = Place::of(name);
  if (!place)
    return Error::user(
        fmt::format("model name '{}': must be NAME or NAME:TAG of letters, digits and ._-", name.substr(0, 200)));
  MILLRACE_TRY(const FileLock lock, FileLock::take(folder_ / "lock"));
  const fs::path folder = model_folder(*place), fresh = folder.string() + fmt::format(".{}.partial", ::getpid());
  std::error_code failed;
  fs::remove_all(fresh, failed);
  fs::create_directories(fresh, failed);
  if (failed) return disk_error(fresh, failed.message());
  const auto give_up = [&](const Error& error) {
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
    return error;
  };
  auto files = StoreJson::array(), draft_files = StoreJson::array(), adapters = StoreJson::array();
  const auto take = [](const std::vector<std::string>& paths, const fs::path& to, StoreJson& names) -> Result<void> {
    std::error_code ignored;
    if (!paths.empty()) fs::create_directories(to, ignored);  // a failure shows in what follows
    for (const std::string& path : paths) {
      const std::string own = stored_file_name(paths, path);
      MILLRACE_TRY_VOID(link_or_copy(path, to / own));
      names.push_back(own);
    }
    return {};
  };
  if (auto done = take(recipe.files, fresh, files); !done.ok()) return give_up(done.error());
  if (auto done = take(recipe.draft_files, fresh / kDraftFolder, draft_files); !done.ok()) return give_up(done.error());
  for (size_t i = 0; i < recipe.about.adapters.size(); ++i) {
    const std::string own = fmt::format("adapter-{}-{}", i, fs::path(recipe.about.adapters[i]).filename().string());
    if (auto done = link_or_copy(recipe.about.adapters[i], fresh / own); !done.ok()) return give_up(done.error());
    adapters.push_back(own);
  }
  const Modelfile& about = recipe.about;
  const StoreJson json = {{"from", about.from},
                          {"built_in", recipe.built_in},
                          {"files", files},
                          {"adapters", adapters},
                          {"draft", recipe.draft_files.empty() ? about.draft : ""},
                          {"draft_files", draft_files},
                          {"template", about.chat_template},
                          {"system", about.system},
                          {"license", about.license},
                          {"parameters", pairs_json(about.parameters)},
                          {"messages", pairs_json(about.messages)},
                          {"kept", pairs_json(about.kept)}};
  {
    std::ofstream out(fresh / kDescription, std::ios::trunc);
    out << json.dump(2, ' ', false, StoreJson::error_handler_t::replace) << '\n';
    if (!out.flush()) return give_up(disk_error(fresh / kDescription, "cannot be written"));
  }
  failed = publish(fresh, folder);  // never without a model under this name
  if (failed) return give_up(disk_error(folder, failed.message()));
  drop_unused_blobs();
  return {};
}

Result<void> ModelStore::copy(std::string_view from, std::string_view to) const {
  const auto model = find(from);
  if (!model) return Error::user(fmt::format("{}: no such model on this machine", from.substr(0, 200)));
  const ModelRecipe recipe{.files = model->files,
                           .built_in = model->files.empty() ? model->path : "",
                           .about = model->about,
                           .draft_files = model->draft_files};
  return create(to, recipe);
}

Result<void> ModelStore::remove(std::string_view name) const {
  MILLRACE_TRY(const FileLock lock, FileLock::take(folder_ / "lock"));
  const auto model = find(name);
  if (!model) return Error::user(fmt::format("{}: no such model on this machine", name.substr(0, 200)));
  std::error_code failed;
  fs::remove(use_file(model->name), failed);
  if (model->cached) return remove_cached(*model);
  const fs::path folder = model_folder(*Place::of(name));
  fs::remove_all(folder, failed);
  if (failed) return disk_error(folder, failed.message());
  for (fs::path parent = folder.parent_path(); parent != folder_ / "names" && fs::is_empty(parent, failed) && !failed;
       parent = parent.parent_path())
    fs::remove(parent, failed);
  drop_unused_blobs();
  return {};
}

// Deletes the snapshot's links, and the blobs that no other link of the repository needs.
Result<void> ModelStore::remove_cached(const StoredModel& model) const {
  std::error_code failed;
  std::set<fs::path> blobs;
  const fs::path repository = cache_.repository(model.name.substr(0, model.name.find(':')));
  for (const std::string& file : model.files) {
    if (const fs::path real = fs::canonical(file, failed); !failed) blobs.insert(real);
    fs::remove(file, failed);
    if (failed) return disk_error(file, failed.message());
  }
  bool any = false;
  for (fs::recursive_directory_iterator at(repository / "snapshots", failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code ignored;
    if (!at->is_regular_file(ignored)) continue;
    any = true;
    blobs.erase(fs::canonical(at->path(), ignored));
  }
  for (const fs::path& blob : blobs)
    if (blob.parent_path() == fs::canonical(repository / "blobs", failed)) fs::remove(blob, failed);
  if (!any) fs::remove_all(repository, failed);
  return {};
}

// An upload that a model uses has a second link.
void ModelStore::drop_unused_blobs() const {
  std::error_code failed;
  const auto now = fs::file_time_type::clock::now();
  std::vector<fs::path> old;
  for (fs::directory_iterator at(folder_ / "blobs", failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    if (fs::hard_link_count(at->path(), ignored) == 1 && now - fs::last_write_time(at->path(), ignored) > kBlobAge)
      old.push_back(at->path());
  }
  for (const fs::path& path : old) fs::remove(path, failed);
}

namespace {

std::optional<std::string> digest_digits(std::string_view digest) {
  if (!digest.starts_with("sha256:") && !digest.starts_with("sha256-")) return std::nullopt;
  digest.remove_prefix(7);
  return digest.size() == 64 && is_hash(digest) ? std::optional(std::string(digest)) : std::nullopt;
}

std::string sha256(std::string_view bytes) {
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), value, &size, EVP_sha256(), nullptr) != 1) return "";
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", value[i]);
  return out;
}

}  // namespace

std::optional<fs::path> ModelStore::blob(std::string_view digest) const {
  const auto digits = digest_digits(digest);
  if (!digits) return std::nullopt;
  const fs::path path = folder_ / "blobs" / ("sha256-" + *digits);
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? std::optional(path) : std::nullopt;
}

Result<void> ModelStore::add_blob(std::string_view digest, std::string_view bytes) const {
  const auto digits = digest_digits(digest);
  if (!digits) return Error::user("digest: must be sha256: and 64 hexadecimal digits");
  if (sha256(bytes) != *digits) return Error::user(fmt::format("digest: the upload is not sha256:{}", *digits));
  const fs::path path = folder_ / "blobs" / ("sha256-" + *digits);
  const fs::path fresh = path.string() + fmt::format(".{}.partial", ::getpid());
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  {
    std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) return disk_error(fresh, "cannot be written");
  }
  failed = publish(fresh, path);
  if (failed) return disk_error(path, failed.message());
  return {};
}

}  // namespace millrace
