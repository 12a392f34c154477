#include "server/batch/batch_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <unordered_set>

#include "base/start_thread.h"
#include "base/storage_error.h"
#include "server/batch/line_runner.h"
#include "server/service.h"
#include "tensor/mapped_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWindowSeconds = 24 * 60 * 60;
constexpr size_t kMaxErrors = 100;                // reported for a failed batch
constexpr auto kSlice = std::chrono::seconds(5);  // time slice of a batch while batches of other keys wait
constexpr int64_t kMaxState = 1 << 20;
constexpr size_t kReserveBytes = 32 << 10;  // the state twice (replace_file) and the descriptions of two files

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string text_of(const Json& json, const char* name) {
  return json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : std::string();
}
bool is_over(const Json& batch) {
  const std::string status = text_of(batch, "status");
  return status != "validating" && status != "in_progress" && status != "finalizing" && status != "cancelling";
}

// Iterates over the non-empty lines of a file; the last one may lack a line end.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  std::optional<std::string_view> next() {
    while (!rest_.empty()) {
      const size_t end = rest_.find('\n');
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      ++number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) return line;
    }
    return std::nullopt;
  }
  int64_t number() const { return number_; }

 private:
  std::string_view rest_;
  int64_t number_ = 0;
};

std::string_view text_in(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

// The answers so far, on disk.
struct BatchRunner::Progress {
  struct Part {
    std::ofstream file;
    fs::path path;
    int64_t bytes = 0;  // of whole lines
  };
  Part output, errors;
  std::unordered_set<std::string> finished;  // custom ids
  int64_t completed = 0, failed = 0;

  // Counts the existing lines and truncates a partial line left by a crash.
  void open(const fs::path& path, Part& part) {
    part.path = path;
    std::error_code error;
    if (fs::exists(path, error) && fs::file_size(path, error) > 0) {
      if (auto mapped = MappedFile::open(path); mapped.ok()) {
        const std::string_view text = text_in(**mapped);
        const size_t whole = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
        Lines lines(text.substr(0, whole));
        while (auto line = lines.next()) {
          const auto done = parse_result_line(*line);
          if (done && finished.insert(done->custom_id).second) ++(done->good ? completed : failed);
        }
        if (whole < text.size()) fs::resize_file(path, whole, error);
        part.bytes = static_cast<int64_t>(whole);
      }
    }
    part.file.open(path, std::ios::binary | std::ios::app);
  }

  Result<void> add(const LineResult& result) {
    const bool good = result.status == 200;
    Part& part = good ? output : errors;
    const std::string line = result_line(result) + "\n";
    errno = 0;
    part.file << line << std::flush;
    if (!part.file) {
      const int why = errno;
      part.file.close();
      std::error_code ignored;
      fs::resize_file(part.path, static_cast<uintmax_t>(part.bytes), ignored);  // the lines before are a valid file
      return storage_error(
          fmt::format("files: the answers cannot be written: {}", why != 0 ? std::strerror(why) : "output error"));
    }
    part.bytes += static_cast<int64_t>(line.size());
    ++(good ? completed : failed);
    return {};
  }
  Json counts(int64_t total) const { return {{"total", total}, {"completed", completed}, {"failed", failed}}; }
};

BatchRunner::BatchRunner(Service& service, FileStore& files, const BatchLimits& limits)
    : service_(service), files_(files), limits_(limits) {
  load();
}

Result<void> BatchRunner::start() {
  MILLRACE_TRY(thread_, start_thread("batches", [this] { loop(); }));
  return {};
}

void BatchRunner::load() {
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (const auto& entry : fs::directory_iterator(files_.folder(), error)) {
    const fs::path path = entry.path();
    if (path.extension() == ".reserve" && !fs::exists(fs::path(path).replace_extension(".json"), error))
      abandoned.push_back(path);  // the batch was never accepted
    if (path.extension() != ".json" || !is_stored_id(path.stem().string(), "batch_")) continue;
    const auto text = read_whole_file(path, kMaxState);
    if (!text.ok()) continue;
    Json batch = parse_json(*text, kMaxOwnJsonDepth);
    if (!batch.is_object() || text_of(batch, "id") != path.stem().string()) continue;
    owners_[path.stem()] = text_of(batch, "owner");
    batch.erase("owner");
    batches_[path.stem()] = std::move(batch);
  }
  for (const fs::path& one : abandoned) fs::remove(one, error);
  for (const auto& [id, batch] : batches_) {
    if (is_over(batch))
      fs::remove(path(id, ".reserve"), error);
    else
      (void)reserve(id);  // if there is space: the batch was accepted
    if (!is_over(batch) || has_leftovers(id)) queue_.push_back(id);
  }
  std::ranges::stable_sort(queue_, {}, [&](const std::string& id) {
    return batches_[id].value("created_at", Json(0)).is_number() ? batches_[id]["created_at"].get<int64_t>() : 0;
  });
}

// Whether answers of a batch that is over are not files yet: it failed when the disk was full.
bool BatchRunner::has_leftovers(const std::string& id) const {
  std::error_code error;
  return fs::exists(path(id, ".output"), error) || fs::exists(path(id, ".errors"), error);
}

void BatchRunner::drop(const std::string& id) {
  std::error_code ignored;
  for (const char* extension : {".json", ".output", ".errors", ".reserve"}) fs::remove(path(id, extension), ignored);
  batches_.erase(id);
  owners_.erase(id);
  std::erase(queue_, id);
}

void BatchRunner::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    interrupted_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> BatchRunner::keep(const std::string& id, Write write) {
  Json stored = batches_[id];
  stored["owner"] = owners_[id];
  const std::string text = to_text(stored);
  std::error_code ignored;
  auto kept = replace_file(path(id, ".json"), text);
  if (!kept.ok() && write == Write::last && fs::remove(path(id, ".reserve"), ignored))
    kept = replace_file(path(id, ".json"), text);
  if (kept.ok() && is_over(stored)) fs::remove(path(id, ".reserve"), ignored);
  return kept;
}

Result<void> BatchRunner::reserve(const std::string& id) const {
  return replace_file(path(id, ".reserve"), std::string(kReserveBytes, '\0'));
}

Result<void> BatchRunner::room_for_batch(const FileUser& user) {
  if (static_cast<int64_t>(batches_.size()) >= limits_.batches)
    return Error::resource(fmt::format("batches: the limit of {} is reached", batches_.size()));
  if (user.admin) return {};
  std::vector<std::string> owned, ended;
  for (const auto& [id, batch] : batches_) {
    if (owners_[id] != user.name) continue;
    owned.push_back(id);
    if (is_over(batch)) ended.push_back(id);
  }
  if (static_cast<int64_t>(owned.size()) < limits_.key_batches) return {};
  if (ended.empty())
    return Error::resource(
        fmt::format("batches: key '{}' has {} unfinished batches; wait for one or cancel it", user.name, owned.size()));
  const std::string oldest = *std::ranges::min_element(
      ended, {}, [&](const std::string& id) { return batches_[id].value("created_at", int64_t{0}); });
  drop(oldest);
  return {};
}

bool BatchRunner::others_wait(const std::string& owner) const {
  return std::ranges::any_of(queue_, [&](const std::string& id) { return owners_.at(id) != owner; });
}

Result<Json> BatchRunner::create(const std::string& input_file, const std::string& endpoint, const std::string& window,
                                 const Json& metadata, const FileUser& user) {
  if (!files_.find(input_file, user))
    return Error::user(fmt::format("input_file_id: no such file '{}'", input_file.substr(0, 100)));
  if (!is_batch_url(endpoint))
    return Error::user(fmt::format("endpoint: '{}' is not available in batches", endpoint.substr(0, 100)));
  const int64_t created = now();
  const std::string id = "batch_" + FileStore::new_id().substr(5);
  const Json batch = {{"id", id},
                      {"object", "batch"},
                      {"endpoint", endpoint},
                      {"errors", nullptr},
                      {"input_file_id", input_file},
                      {"completion_window", window},
                      {"status", "validating"},
                      {"output_file_id", nullptr},
                      {"error_file_id", nullptr},
                      {"created_at", created},
                      {"in_progress_at", nullptr},
                      {"expires_at", created + kWindowSeconds},
                      {"finalizing_at", nullptr},
                      {"completed_at", nullptr},
                      {"failed_at", nullptr},
                      {"expired_at", nullptr},
                      {"cancelling_at", nullptr},
                      {"cancelled_at", nullptr},
                      {"request_counts", {{"total", 0}, {"completed", 0}, {"failed", 0}}},
                      {"metadata", metadata}};
  {
    std::lock_guard lock(mutex_);
    MILLRACE_TRY_VOID(room_for_batch(user));
    batches_[id] = batch;
    owners_[id] = user.name;
    auto kept = reserve(id);
    if (kept.ok()) kept = keep(id);
    if (!kept.ok()) {
      std::error_code ignored;
      fs::remove(path(id, ".reserve"), ignored);
      batches_.erase(id);
      owners_.erase(id);
      return kept.error();
    }
    queue_.push_back(id);
  }
  wake_.notify_all();
  return batch;
}

std::vector<Json> BatchRunner::list(const FileUser& user) const {
  std::lock_guard lock(mutex_);
  std::vector<Json> out;
  for (const auto& [id, batch] : batches_)
    if (user.sees(owners_.at(id))) out.push_back(batch);
  std::ranges::stable_sort(out, std::greater(),
                           [](const Json& batch) { return batch.value("created_at", int64_t{0}); });
  return out;
}

std::optional<Json> BatchRunner::find(const std::string& id, const FileUser& user) const {
  std::lock_guard lock(mutex_);
  const auto found = batches_.find(id);
  return found == batches_.end() || !user.sees(owners_.at(id)) ? std::nullopt : std::optional(found->second);
}

bool BatchRunner::remove(const std::string& id, const FileUser& user) {
  std::lock_guard lock(mutex_);
  const auto found = batches_.find(id);
  if (found == batches_.end() || !user.sees(owners_.at(id)) || !is_over(found->second)) return false;
  drop(id);
  return true;
}

bool BatchRunner::uses(const std::string& file) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      batches_, [&](const auto& one) { return !is_over(one.second) && text_of(one.second, "input_file_id") == file; });
}

std::optional<Json> BatchRunner::cancel(const std::string& id, const FileUser& user) {
  std::lock_guard lock(mutex_);
  const auto found = batches_.find(id);
  if (found == batches_.end() || !user.sees(owners_.at(id))) return std::nullopt;
  Json& batch = found->second;
  if (is_over(batch) || batch["status"] == "finalizing") return batch;
  batch["status"] = "cancelling";
  batch["cancelling_at"] = now();
  (void)keep(id);  // at worst it resumes after a restart
  if (current_ == id) interrupted_ = true;
  return batch;
}

// Errors: kStorageError; the change holds until the next start, which at worst repeats some work.
Result<void> BatchRunner::change(const std::string& id, const Json& fields, Write write) {
  std::lock_guard lock(mutex_);
  const auto found = batches_.find(id);
  if (found == batches_.end()) return {};  // removed
  Json& batch = found->second;
  if (batch["status"] == "cancelling" && fields.value("status", "") == "in_progress") return {};
  batch.update(fields);
  return write == Write::no ? Result<void>() : keep(id, is_over(batch) ? Write::last : write);
}

void BatchRunner::loop() {
  for (;;) {
    std::string id;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      id = current_ = queue_.front();
      queue_.erase(queue_.begin());
      interrupted_ = false;
    }
    try {
      run(id);
    } catch (const std::exception& error) {
      fail(id, error.what());
    }
  }
}

void BatchRunner::fail(const std::string& id, const std::string& why) { fail_for(id, Error::internal(why)); }

void BatchRunner::fail_for(const std::string& id, const Error& error) {
  const char* code = error.kind == kStorageError ? "no_storage" : "server_error";
  (void)change(
      id,
      {{"status", "failed"},
       {"failed_at", now()},
       {"errors",
        {{"object", "list"},
         {"data",
          Json::array({Json{{"code", code}, {"message", error.message}, {"param", nullptr}, {"line", nullptr}}})}}}});
}

std::string BatchRunner::owner_of(const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto found = owners_.find(id);
  return found == owners_.end() ? "" : found->second;
}

void BatchRunner::run(const std::string& id) {
  const auto batch = find(id);
  if (!batch) return;
  const std::string status = text_of(*batch, "status");
  if (is_over(*batch)) return finalize(id, status.c_str());
  if (status == "finalizing") return finalize(id, "completed");
  if (status == "cancelling") return finalize(id, "cancelled");
  if (status == "validating" && !validate(id)) return;
  run_lines(id);
}

// Checks every line before the first is run. False: the batch has failed.
bool BatchRunner::validate(const std::string& id) {
  const Json batch = *find(id);
  Json errors = Json::array();
  const auto wrong = [&](const std::string& message, Json line) {
    if (errors.size() < kMaxErrors)
      errors.push_back(
          {{"code", "invalid_request"}, {"message", message}, {"param", nullptr}, {"line", std::move(line)}});
  };
  int64_t total = 0;
  std::unordered_set<std::string> ids;
  auto file = MappedFile::open(files_.path(text_of(batch, "input_file_id")));
  if (!file.ok()) wrong(file.error().message, nullptr);
  Lines lines(file.ok() ? text_in(**file) : std::string_view());
  while (auto text = lines.next()) {
    if (++total > limits_.lines) {
      wrong(fmt::format("the file has more than {} lines", limits_.lines), lines.number());
      break;
    }
    const auto line = parse_batch_line(*text);
    if (!line.ok())
      wrong(line.error().message, lines.number());
    else if (line->url != text_of(batch, "endpoint"))
      wrong(fmt::format("url: must be the endpoint of the batch, {}", text_of(batch, "endpoint")), lines.number());
    else if (!ids.insert(line->custom_id).second)
      wrong(fmt::format("custom_id: duplicate '{}'", line->custom_id), lines.number());
  }
  if (total == 0 && errors.empty()) wrong("the file contains no requests", nullptr);
  if (!errors.empty()) {
    (void)change(
        id,
        {{"status", "failed"}, {"failed_at", now()}, {"errors", {{"object", "list"}, {"data", std::move(errors)}}}});
    return false;
  }
  (void)change(id, {{"status", "in_progress"},
                    {"in_progress_at", now()},
                    {"request_counts", {{"total", total}, {"completed", 0}, {"failed", 0}}}});
  return true;
}

void BatchRunner::run_lines(const std::string& id) {
  const Json batch = *find(id);
  const int64_t total = batch["request_counts"].value("total", int64_t{0}),
                expires = batch.value("expires_at", int64_t{0});
  Progress progress;
  progress.open(path(id, ".output"), progress.output);
  progress.open(path(id, ".errors"), progress.errors);
  (void)change(id, {{"request_counts", progress.counts(total)}}, Write::no);
  const auto file = MappedFile::open(files_.path(text_of(batch, "input_file_id")));
  if (!file.ok()) return fail(id, "the input file cannot be read");
  Lines lines(text_in(**file));
  bool expired = false;
  const auto next = [&]() -> std::optional<BatchLine> {
    if (expired || (expired = now() >= expires)) return std::nullopt;
    while (auto text = lines.next()) {
      auto line = parse_batch_line(*text);
      if (line.ok() && !progress.finished.contains(line->custom_id)) return std::move(*line);
    }
    return std::nullopt;
  };
  const auto done = [&](const LineResult& result) -> Result<void> {
    MILLRACE_TRY_VOID(progress.add(result));
    return change(id, {{"request_counts", progress.counts(total)}}, Write::no);
  };
  const std::string owner = owner_of(id);
  const auto account = service_.account_of(owner);
  if (!owner.empty() && !account && service_.has_keys())
    return fail(id, fmt::format("the key '{}' that created the batch no longer exists", owner));
  const auto slice_ends = std::chrono::steady_clock::now() + kSlice;
  bool yielded = false;
  const auto yield = [&] {
    if (expired || (expired = now() >= expires)) return true;
    if (yielded || std::chrono::steady_clock::now() < slice_ends) return yielded;
    std::lock_guard lock(mutex_);
    return yielded = others_wait(owner);
  };
  auto ran = LineRunner(service_, limits_.in_flight, account).run(next, done, interrupted_, yield);
  if (stop_) return;  // it resumes at the next start
  if (!ran.ok()) {    // what is answered becomes a file all the same, if there is space for its description
    fail_for(id, ran.error());
    return finalize(id, "failed");
  }
  if (yielded && !interrupted_ && !expired) {  // back of the queue: other keys' batches run first
    std::lock_guard lock(mutex_);
    queue_.push_back(id);
    return;
  }
  finalize(id, text_of(*find(id), "status") == "cancelling" ? "cancelled" : expired ? "expired" : "completed");
}

// Records the ids of the files before creating them, so that finalizing again after a crash is idempotent.
void BatchRunner::finalize(const std::string& id, const char* status) {
  const bool completes = std::string_view(status) == "completed";
  Json fields = Json::object();
  if (completes) fields = {{"status", "finalizing"}, {"finalizing_at", now()}};  // others do not pass through it
  const Json batch = find(id).value_or(Json::object());
  const std::pair<const char*, const char*> parts[] = {{".output", "output_file_id"}, {".errors", "error_file_id"}};
  for (const auto& [extension, name] : parts) {
    std::error_code error;
    const auto size = fs::file_size(path(id, extension), error);
    if (error) continue;
    if (size == 0)
      fs::remove(path(id, extension), error);
    else if (text_of(batch, name).empty())
      fields[name] = FileStore::new_id();
  }
  Result<void> published = change(id, fields, Write::last);  // an id that is not recorded must not become a file
  const Json known = find(id).value_or(Json::object());
  for (const auto& [extension, name] : parts) {
    if (!published.ok() || text_of(known, name).empty()) continue;
    auto adopted = files_.adopt(path(id, extension), text_of(known, name), id + extension + ".jsonl", "batch_output",
                                owner_of(id));
    if (!adopted.ok()) published = adopted.error();
  }
  if (published.ok()) {
    Json end = {{"status", status}};
    if (!is_over(known)) end[std::string(status) + "_at"] = now();
    return (void)change(id, end);
  }
  for (const auto& [extension, name] : parts)
    if (!text_of(known, name).empty() && !files_.find(text_of(known, name)))
      (void)change(id, {{name, nullptr}}, Write::no);  // the next start tries again
  if (!is_over(known)) fail_for(id, published.error());
}

}  // namespace millrace
