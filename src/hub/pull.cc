#include "hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/memory_accounts.h"
#include "base/network_error.h"
#include "base/start_thread.h"
#include "hub/file_choice.h"
#include "hub/piece_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxListBytes = size_t{64} << 20;
constexpr int64_t kSpareBytes = int64_t{64} << 20;  // of disk space to leave free

// Returns the path, or the nearest folder above it that exists.
fs::path existing(fs::path path) {
  std::error_code ignored;
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) path = path.parent_path();
  return path.empty() || !fs::exists(path, ignored) ? fs::path(".") : path;
}

// The error for the status of a request for `what`.
Error refused(const HttpAnswer& answer, const std::string& what) {
  const std::string detail = answer.header("x-error-message").substr(0, 300);
  const std::string more = detail.empty() ? "" : fmt::format(" ({})", detail);
  if (answer.status == 401 || answer.status == 403)
    return Error::user(fmt::format("{}: the hub denies access (status {}){}; set HF_TOKEN to a token with access", what,
                                   answer.status, more));
  if (answer.status == 404) return Error::user(fmt::format("{}: not found (status 404){}", what, more));
  if (answer.status == 429 || answer.status >= 500)
    return network_error(fmt::format("{}: the hub returned status {}{}", what, answer.status, more));
  return Error::user(fmt::format("{}: the hub returned status {}{}", what, answer.status, more));
}

// "bytes 100-199/1000": checks the first byte and the total size.
bool range_is(const HttpAnswer& answer, int64_t first, int64_t size) {
  const std::string range = answer.header("content-range");
  return range.starts_with(fmt::format("bytes {}-", first)) && range.ends_with(fmt::format("/{}", size));
}

// One file being downloaded.
struct Transfer {
  RemoteFile file;
  FileLock lock;
  std::optional<PieceFile> pieces;
  int64_t left = 0;  // missing pieces
};

class Pull {
 public:
  Pull(const HubName& name, const PullOptions& options) : name_(name), options_(options), cache_(options.cache) {}

  Result<PulledModel> run() {
    if (!is_safe_path(options_.revision) || options_.revision.size() > 255)
      return Error::user(fmt::format("revision: '{}' is invalid", options_.revision.substr(0, 200)));
    if (options_.piece_bytes < 1 || options_.connections < 1) return Error::user("connections: must be 1 or more");
    return options_.offline ? from_cache() : from_hub();
  }

 private:
  Result<PulledModel> from_cache() const {
    const auto commit = cache_.commit_of(name_.repository, options_.revision);
    const auto files = commit ? cache_.files(name_.repository, *commit) : std::vector<std::string>();
    if (files.empty())
      return Error::user(fmt::format("{}: revision {} is not in the cache, and offline mode is on", name_.repository,
                                     options_.revision));
    auto choice = choose_files(files, name_.wanted);
    if (!choice.ok()) return Error::user(fmt::format("{}: in the cache: {}", name_.repository, choice.error().message));
    PulledModel out{.path = (cache_.snapshot(name_.repository, *commit) / choice->main).string(),
                    .commit = *commit,
                    .files = choice->files};
    std::error_code ignored;
    for (const std::string& file : out.files)
      out.bytes += static_cast<int64_t>(fs::file_size(cache_.snapshot(name_.repository, *commit) / file, ignored));
    if (choice->main.empty()) out.path.pop_back();
    return out;
  }

  Result<PulledModel> from_hub() {
    MILLRACE_TRY(repository_, list());
    std::vector<std::string> names;
    for (const RemoteFile& file : repository_.files) names.push_back(file.name);
    auto choice = choose_files(names, name_.wanted);
    if (!choice.ok())
      return Error{choice.error().kind, fmt::format("{}: {}", name_.repository, choice.error().message)};
    std::vector<RemoteFile> chosen;
    for (const RemoteFile& file : repository_.files)
      if (std::ranges::find(choice->files, file.name) != choice->files.end()) chosen.push_back(file);
    MILLRACE_TRY_VOID(check_space(chosen));
    MILLRACE_TRY_VOID(plan(chosen));
    before_ = have_;
    MILLRACE_TRY_VOID(transfer());
    for (const RemoteFile& file : chosen)
      MILLRACE_TRY_VOID(cache_.link(name_.repository, repository_.commit, file.name, file.hash));
    MILLRACE_TRY_VOID(cache_.set_commit(name_.repository, options_.revision, repository_.commit));
    const fs::path folder = cache_.snapshot(name_.repository, repository_.commit);
    return PulledModel{.path = choice->main.empty() ? folder.string() : (folder / choice->main).string(),
                       .commit = repository_.commit,
                       .files = choice->files,
                       .bytes = total_,
                       .downloaded = total_ - before_};
  }

  Result<RemoteRepository> list() const {
    MILLRACE_TRY(const HubUrl url,
                 parse_hub_url(fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.endpoint,
                                           name_.repository, in_url(options_.revision))));
    std::string text;
    HttpGet get{.bearer = options_.token, .timeout_seconds = options_.timeout_seconds, .stopped = options_.cancelled};
    get.body = [&](const HttpAnswer&, std::string_view bytes) {
      text += bytes;
      return text.size() <= kMaxListBytes;
    };
    const auto answer = http_get(url, get);
    if (!answer.ok() && options_.cancelled && options_.cancelled()) return stopped_error();
    if (!answer.ok()) return answer.error();
    if (answer->status != 200) return refused(*answer, fmt::format("{} at {}", name_.repository, options_.revision));
    return parse_repository(text);
  }

  bool is_complete(const RemoteFile& file) const {
    std::error_code ignored;
    const fs::path blob = cache_.blob(name_.repository, file.hash);
    return fs::is_regular_file(blob, ignored) && static_cast<int64_t>(fs::file_size(blob, ignored)) == file.size;
  }

  // Refuses a download for which the disk has no room, before anything is created.
  Result<void> check_space(const std::vector<RemoteFile>& files) const {
    int64_t missing = 0;
    for (const RemoteFile& file : files)
      if (!is_complete(file))
        missing += std::max<int64_t>(0, file.size - PieceFile::stored_bytes(cache_.blob(name_.repository, file.hash)));
    std::error_code failed;
    const auto space = fs::space(existing(cache_.repository(name_.repository)), failed);
    const auto left = static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
    if (failed || missing == 0 || left >= missing + kSpareBytes) return {};
    return Error::resource(fmt::format("{}: {} are still to be downloaded, but the disk has only {} left",
                                       options_.shown_name.empty() ? name_.repository : options_.shown_name,
                                       format_bytes(missing), format_bytes(left)));
  }

  static Error stopped_error() { return Error::cancelled("the download was stopped"); }

  // Locks missing files, in the same order in all processes to avoid deadlock, and resumes their partial downloads.
  Result<void> plan(std::vector<RemoteFile> files) {
    std::ranges::sort(files, {}, &RemoteFile::hash);
    const auto same = std::ranges::unique(files, {}, &RemoteFile::hash);
    files.erase(same.begin(), same.end());
    std::error_code failed;
    fs::create_directories(cache_.repository(name_.repository) / "blobs", failed);
    if (failed)
      return Error::resource(fmt::format("{}: {}", cache_.repository(name_.repository).string(), failed.message()));
    std::vector<Transfer> wanted;
    for (const RemoteFile& file : files) {
      total_ += file.size;
      if (!is_complete(file)) {
        MILLRACE_TRY(FileLock lock, FileLock::take(cache_.lock_file(name_.repository, file.hash), options_.cancelled));
        if (!is_complete(file)) {  // still missing after waiting for the lock
          wanted.push_back({.file = file, .lock = std::move(lock), .pieces = {}});
          continue;
        }
      }
      have_ += file.size;
    }
    for (Transfer& one : wanted) {
      auto pieces = PieceFile::open(cache_.blob(name_.repository, one.file.hash), one.file, options_.piece_bytes);
      if (!pieces.ok()) return pieces.error();
      one.pieces.emplace(std::move(*pieces));
      const size_t index = transfers_.size();
      for (int64_t piece = 0; piece < one.pieces->pieces(); ++piece) {
        if (one.pieces->has(piece)) {
          have_ += one.pieces->end_of(piece) - one.pieces->begin_of(piece);
        } else {
          have_ += one.pieces->arrived(piece);
          ++one.left;
          queue_.push_back({index, piece});
        }
      }
      if (one.left == 0) MILLRACE_TRY_VOID(one.pieces->finish());
      transfers_.push_back(std::move(one));
    }
    return {};
  }

  // The caller's thread reports progress, the other threads fetch.
  Result<void> transfer() {
    std::vector<std::thread> threads;
    const size_t count = std::min(static_cast<size_t>(options_.connections), queue_.size());
    running_ = count;
    for (size_t i = 0; i < count; ++i) {
      auto started = start_thread("download", [this] { work(); });
      if (started.ok()) {
        threads.push_back(std::move(*started));
        continue;
      }
      std::lock_guard lock(mutex_);  // those that run fetch what this one would have; with none, it is the error
      running_ -= count - i;
      if (threads.empty()) error_ = started.error();
      break;
    }
    {
      std::unique_lock lock(mutex_);
      while (running_ > 0) {
        wake_.wait_for(lock, std::chrono::milliseconds(200));
        if (options_.progress) options_.progress({have_, total_, before_});
        if (!error_ && options_.cancelled && options_.cancelled()) {
          error_ = stopped_error();
          wake_.notify_all();
        }
      }
    }
    for (std::thread& thread : threads) thread.join();
    if (options_.progress) options_.progress({have_, total_, before_});
    return error_ ? Result<void>(*error_) : Result<void>();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!error_ && !queue_.empty()) {
      const auto [index, piece] = queue_.front();
      queue_.pop_front();
      lock.unlock();
      Transfer& transfer = transfers_[index];
      auto done = fetch(transfer, piece);
      if (done.ok()) done = transfer.pieces->mark(piece);
      lock.lock();
      const bool whole = done.ok() && --transfer.left == 0;
      if (whole) {
        lock.unlock();
        done = transfer.pieces->finish();
        lock.lock();
      }
      if (!done.ok() && !error_) {
        error_ = done.error();
        wake_.notify_all();
      }
    }
    --running_;
    wake_.notify_all();
  }

  bool stopped() {
    std::lock_guard lock(mutex_);
    return error_.has_value();
  }

  // Resumes after a lost connection; gives up after `attempts` attempts without progress.
  Result<void> fetch(Transfer& transfer, int64_t piece) {
    int64_t at = transfer.pieces->begin_of(piece) + transfer.pieces->arrived(piece);
    const int64_t end = transfer.pieces->end_of(piece);
    if (at == end) return {};
    double wait = options_.wait_seconds;
    for (int attempt = 1;; ++attempt) {
      const int64_t before = at;
      auto tried = fetch_from(transfer, end, at);
      if (at == end) return {};
      if (tried.ok()) tried = network_error(fmt::format("{}: the answer ended early", transfer.file.name));
      if (tried.error().kind != kNetworkError || stopped()) return tried;
      if (at > before) attempt = 0, wait = options_.wait_seconds;
      if (attempt >= options_.attempts) return tried;
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::duration<double>(attempt == 0 ? 0 : wait), [&] { return error_.has_value(); });
      if (attempt > 0) wait *= 2;
    }
  }

  Result<void> fetch_from(Transfer& transfer, int64_t end, int64_t& at) {
    const RemoteFile& file = transfer.file;
    MILLRACE_TRY(const HubUrl url, parse_hub_url(fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, name_.repository,
                                                             repository_.commit, in_url(file.name))));
    HttpGet get{.headers = {{"Range", fmt::format("bytes={}-{}", at, end - 1)}},
                .bearer = options_.token,
                .timeout_seconds = options_.timeout_seconds,
                .stopped = [this] { return stopped(); }};
    Result<void> wrote;
    const int64_t first = at;
    int64_t skip = first;  // a server without range support sends the whole file
    get.body = [&](const HttpAnswer& answer, std::string_view bytes) {
      if ((answer.status != 200 && answer.status != 206) || stopped()) return false;
      if (answer.status == 206 && at == first && !range_is(answer, first, file.size)) return false;
      if (answer.status == 200 && skip > 0) {
        const auto drop = static_cast<size_t>(std::min<int64_t>(skip, static_cast<int64_t>(bytes.size())));
        bytes.remove_prefix(drop);
        skip -= static_cast<int64_t>(drop);
      }
      bytes = bytes.substr(0, static_cast<size_t>(end - at));
      if (bytes.empty()) return at < end;
      wrote = transfer.pieces->write(at, bytes);
      if (!wrote.ok()) return false;
      at += static_cast<int64_t>(bytes.size());
      have_ += static_cast<int64_t>(bytes.size());
      return at < end;
    };
    const auto answer = http_get(url, get);
    if (!wrote.ok()) return Error::internal(wrote.error().message);  // a disk error: retrying is useless
    if (!answer.ok()) return answer.error();
    if (answer->status == 416 || (answer->status == 206 && !range_is(*answer, first, file.size)))
      return Error::corrupt(
          fmt::format("{}: its size differs from the {} bytes that the hub listed", file.name, file.size));
    if (answer->status != 200 && answer->status != 206) return refused(*answer, file.name);
    return {};
  }

  const HubName& name_;
  const PullOptions& options_;
  HubCache cache_;
  RemoteRepository repository_;
  std::vector<Transfer> transfers_;
  int64_t total_ = 0;
  int64_t before_ = 0;  // bytes that were there when the transfer began
  std::atomic<int64_t> have_{0};

  std::mutex mutex_;  // guards the members below and Transfer::left
  std::condition_variable wake_;
  std::deque<std::pair<size_t, int64_t>> queue_;  // transfer and piece to fetch
  size_t running_ = 0;
  std::optional<Error> error_;  // the first error
};

}  // namespace

Result<PulledModel> pull_model(const HubName& name, const PullOptions& options) { return Pull(name, options).run(); }

}  // namespace millrace
