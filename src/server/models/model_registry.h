// ModelRegistry: the models of a server by name, in memory or not. A request that needs one which is not loaded waits
// while a thread of the registry's own loads it; streams of the others go on meanwhile.
//
//     request --acquire()--> loaded?  the model at once, held until the request lets it go
//                            else     waits --> loading thread: makes room (the idle model that was used longest ago
//                                     goes first), loads, answers all that wait
//
// A model that is unloaded or replaced takes no new requests, goes on for those that hold it, and goes itself when the
// last of them is done; a model that nobody used for a while may be unloaded by itself. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/models/model_folder.h"
#include "server/models/model_loader.h"

namespace millrace {

struct RegistryOptions {
  int64_t memory = 0;         // budget of all models together, bytes; 0: none
  std::string folder;         // models there are listed and loaded on demand; "": none
  ModelConfig found;          // how those are loaded: all but name and path
  bool any_name = false;      // a name that nobody has is the first model's
  size_t most_waiting = 256;  // requests that wait for one model
};

struct ModelStatus {
  std::string name;
  std::vector<std::string> aliases;
  std::string path;
  const char* state = "unloaded";       // or loading, loaded
  std::string error;                    // of the last load; "": it went well
  std::shared_ptr<ServedModel> served;  // where it is loaded; for a moment only, it counts as no use
  int64_t open = 0;                     // requests that hold it
  std::optional<double> idle_left;      // seconds until it is unloaded; none: never
};

class ModelRegistry {
 public:
  using Ready = std::function<void(Result<std::shared_ptr<ServedModel>>)>;

  // Errors: resource (the budget is more than the machine has).
  static Result<std::unique_ptr<ModelRegistry>> create(RegistryOptions options);
  ~ModelRegistry();  // stop()

  // The first one added is the one that requests without a name get. Errors: user (a name that is taken, a folder of
  // models without any).
  Result<void> add(ModelConfig config);
  // One that was made elsewhere, outside the budget; it stays.
  void adopt(std::shared_ptr<ServedModel> served);
  // Waits until every model that asks for it is loaded, or has failed.
  Result<void> preload();

  // The own name of the model that is called `name` ("": the first one); none: there is no such.
  std::optional<std::string> resolve(const std::string& name);
  // The model by its own name, at once where it is loaded; null otherwise. `keep_seconds`: as acquire().
  std::shared_ptr<ServedModel> try_acquire(const std::string& name, std::optional<double> keep_seconds = {});
  // The same, loaded if need be; `ready` is then called on the loading thread. `keep_seconds` is the idle time from now
  // on; negative: for ever. Errors handed to it: those of loading; resource (too many wait); cancelled (the server
  // stops).
  void acquire(const std::string& name, std::optional<double> keep_seconds, Ready ready);
  // Loads it anew, from `path` unless that is empty; the old one serves until then, and its open requests to their end.
  void reload(const std::string& name, const std::string& path, Ready ready);
  // False: it is not loaded.
  bool unload(const std::string& name);

  std::vector<ModelStatus> list();
  // Those in memory, without a look at the folder; for a moment only, it counts as no use.
  std::vector<std::shared_ptr<ServedModel>> loaded();
  int64_t folder_looks() const { return folder_.looks(); }
  // The first one; null where it is not loaded. Counts as no use.
  std::shared_ptr<ServedModel> first();
  std::shared_ptr<MemoryAccounts> memory() const { return memory_; }  // null: no budget

  // Ends all engines and with them their streams; who waits gets an error.
  void stop();

  struct Slot;    // one model in memory
  struct Shared;  // what outlives the registry, for those that hold a model

 private:
  struct Entry {
    ModelConfig config;
    std::shared_ptr<Slot> slot;  // null: not loaded
    std::vector<Ready> waiting;
    std::optional<double> keep_seconds;  // asked for by a request that waits
    bool adopted = false;                // there is nothing to load it from
    bool queued = false, loading = false, anew = false;
    std::string new_path;
    std::string error;
    ErrorKind error_kind = ErrorKind::internal;
    bool failed_for_good = false;  // until the file changes
    int64_t failed_stamp = 0;      // of the file then
  };

  explicit ModelRegistry(RegistryOptions options);
  void look_into_folder();
  // All of these hold the mutex, and some let go of it meanwhile.
  using Lock = std::unique_lock<std::mutex>;
  Entry* find_locked(const std::string& name);
  std::shared_ptr<ServedModel> lease_locked(Entry& entry, std::optional<double> keep_seconds);
  Result<void> enqueue_locked(const std::string& name, Entry& entry, Ready& ready);
  void retire_locked(Entry& entry);
  std::optional<std::chrono::steady_clock::time_point> unload_idle_locked();
  bool dispose_locked(Lock& lock);
  void load_locked(Lock& lock, const std::string& name);
  void loop();
  bool free_memory(const std::string& for_whom);

  RegistryOptions options_;
  ModelFolder folder_;
  std::shared_ptr<MemoryAccounts> memory_;
  std::shared_ptr<Shared> shared_;  // its mutex guards what follows
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;  // of entries_, as they were added
  std::deque<std::string> queue_;   // to be loaded
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace millrace
