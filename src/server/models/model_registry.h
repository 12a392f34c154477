// ModelRegistry: a server's models by name, loaded or not. A request for a model that is not loaded waits while the
// registry's own thread loads it; streams of other models continue meanwhile.
//
// request --acquire()--> loaded:  receives the model immediately and holds it until it releases it
//                            else:    waits --> loading thread: unloads the least recently used idle models until there
//                                     is room, loads the model, answers all waiting requests
//
// A model that is unloaded or replaced receives no new requests and is freed when the last request that holds it is
// done. A model can also be unloaded automatically after an idle time. Thread-safe.
#pragma once

#include <atomic>
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

#include "hub/model_store.h"
#include "server/models/model_folder.h"
#include "server/models/model_loader.h"

namespace millrace {

struct RegistryOptions {
  int64_t memory = 0;  // budget for all models together, bytes; 0: none
  std::string folder;  // its models are listed and loaded on demand; "": none
  ModelConfig found;   // settings for models in the folder and the store, except name and path
  std::shared_ptr<const ModelStore> store = nullptr;  // its models are listed and loaded on demand; null: none
  bool any_name = false;                              // unknown names mean the first model
  size_t most_waiting = 256;                          // requests waiting for one model
};

struct ModelStatus {
  std::string name;
  std::vector<std::string> aliases;
  std::string path;
  const char* state = "unloaded";       // or loading, loaded
  std::string error;                    // error of the last load; "": success
  std::shared_ptr<ServedModel> served;  // if loaded; hold it briefly, it does not count as use
  int64_t open = 0;                     // requests holding it
  std::optional<double> idle_left;      // seconds until it is unloaded; nullopt: never
};

class ModelRegistry {
 public:
  using Ready = std::function<void(Result<std::shared_ptr<ServedModel>>)>;

  // Errors: resource (the budget is more than the machine has).
  static Result<std::unique_ptr<ModelRegistry>> create(RegistryOptions options);
  ~ModelRegistry();  // stop()

  // The first model added is the default for requests without a name. Errors: user (the name is invalid or taken).
  Result<void> add(ModelConfig config);
  // Adds a model created elsewhere, outside the budget; it is never unloaded.
  void adopt(std::shared_ptr<ServedModel> served);
  // Waits until every model with `preload` is loaded; stops at the first error.
  Result<void> preload();

  // The canonical name of the model with this name or alias ("": the first one); nullopt: unknown.
  std::optional<std::string> resolve(const std::string& name);
  // The model with this canonical name if it is loaded; null otherwise. `keep_seconds`: as for acquire().
  std::shared_ptr<ServedModel> try_acquire(const std::string& name, std::optional<double> keep_seconds = {});
  // Variant that loads the model if necessary and then calls `ready` on the loading thread. `keep_seconds` sets the
  // model's idle time; negative: never unload. Errors passed to `ready`: those of loading; resource (too many requests
  // are waiting); cancelled (the server stops).
  void acquire(const std::string& name, std::optional<double> keep_seconds, Ready ready);
  // Loads the model again, from `path` unless empty. The old one serves requests until then and finishes its open ones.
  void reload(const std::string& name, const std::string& path, Ready ready);
  // Returns false if it is not loaded.
  bool unload(const std::string& name);

  std::vector<ModelStatus> list();
  // The loaded models, without scanning the folder. Hold them briefly: this does not count as use.
  std::vector<std::shared_ptr<ServedModel>> loaded();
  int64_t folder_looks() const { return folder_.looks(); }
  const ModelStore* store() const { return options_.store.get(); }  // null: none
  // Looks into the store again at the next call, whenever the last look was.
  void store_changed() { store_due_ = true; }
  // The first model; null if not loaded. Does not count as use.
  std::shared_ptr<ServedModel> first();
  std::shared_ptr<MemoryAccounts> memory() const { return memory_; }  // null: no budget
  // The shares of the budget that all models have in common; without one, of the first model's own budget.
  AnswerParts answer_parts();

  // Stops all engines and with them their streams; waiting requests get an error.
  void stop();

  struct Slot;    // one model in memory
  struct Shared;  // outlives the registry, for requests that still hold a model

 private:
  struct Entry {
    ModelConfig config;
    std::shared_ptr<Slot> slot;  // null: not loaded
    std::vector<Ready> waiting;
    std::optional<double> keep_seconds;  // requested by a waiting request
    bool adopted = false;                // see adopt()
    bool queued = false, loading = false, anew = false;
    std::string new_path;
    std::string error;
    ErrorKind error_kind = ErrorKind::internal;
    bool failed_for_good = false;  // until the file changes
    int64_t failed_stamp = 0;      // time stamp of the file at that time
  };

  explicit ModelRegistry(RegistryOptions options);
  void look_into_folder();
  void look_into_store();
  // The *_locked functions are called with the mutex held; those with a Lock argument release it temporarily.
  using Lock = std::unique_lock<std::mutex>;
  Entry* find_locked(const std::string& name);
  // Returns the model for a name that is neither a name nor an alias here: another name of a built-in model that is
  // served, or the name in the files of exactly one loaded model. nullopt: there is none, or several.
  std::optional<std::string> known_otherwise_locked(const std::string& name);
  std::shared_ptr<ServedModel> lease_locked(Entry& entry, std::optional<double> keep_seconds);
  Result<void> enqueue_locked(const std::string& name, Entry& entry, Ready& ready);
  void retire_locked(Entry& entry);
  std::optional<std::chrono::steady_clock::time_point> unload_idle_locked();
  bool dispose_locked(Lock& lock);
  void load_locked(Lock& lock, const std::string& name);
  void loop();
  bool free_memory(const std::string& replaced);

  RegistryOptions options_;
  ModelFolder folder_;
  std::mutex store_mutex_;  // held while looking into the store; requests do not wait for it
  std::chrono::steady_clock::time_point store_looked_;
  std::atomic<bool> store_due_{true};
  std::shared_ptr<MemoryAccounts> memory_;
  std::shared_ptr<AnswerMemory> answers_;  // memory for the answers of all models; null: each model has its own
  std::shared_ptr<Shared> shared_;         // its mutex guards the members below
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;  // names in entries_ in the order they were added
  std::deque<std::string> queue_;   // to be loaded
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace millrace
