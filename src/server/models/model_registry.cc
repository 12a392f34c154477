#include "server/models/model_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <utility>

#include "base/memory.h"
#include "base/start_thread.h"
#include "run/embedded_model.h"
#include "run/language_model.h"
#include "server/models/stored_models.h"

namespace millrace {

using Clock = std::chrono::steady_clock;

struct ModelRegistry::Slot {
  std::shared_ptr<ServedModel> served;
  int64_t open = 0;          // requests holding it
  double keep_seconds = -1;  // unloaded after this idle time; negative: never
  bool retired = false;
  Clock::time_point last_use = Clock::now();
};

struct ModelRegistry::Shared {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::shared_ptr<Slot>> retired;  // still held by requests, or about to be freed
};

namespace {

constexpr auto kStoreRescan = std::chrono::seconds(1);

std::string without_latest(const std::string& name) {
  return name.ends_with(":latest") ? name.substr(0, name.size() - 7) : name;
}

bool called(const ModelConfig& config, const std::string& name) {
  return config.name == name || std::ranges::find(config.aliases, name) != config.aliases.end();
}

}  // namespace

ModelRegistry::ModelRegistry(RegistryOptions options)
    : options_(std::move(options)), folder_(options_.folder), shared_(std::make_shared<Shared>()) {}

ModelRegistry::~ModelRegistry() { stop(); }

Result<std::unique_ptr<ModelRegistry>> ModelRegistry::create(RegistryOptions options) {
  auto registry = std::unique_ptr<ModelRegistry>(new ModelRegistry(std::move(options)));
  if (const int64_t budget = registry->options_.memory; budget > 0) {
    if (const AvailableMemory total = total_memory(); budget > total.bytes)
      return Error::resource(fmt::format("memory: the budget is {}, {} has {}; lower it", format_bytes(budget),
                                         total.limit, format_bytes(total.bytes)));
    registry->memory_ = std::make_shared<MemoryAccounts>(budget);
    MILLRACE_TRY_VOID(registry->memory_->take("program", program_memory(), "raise the budget"));
    MILLRACE_TRY(registry->answers_, AnswerMemory::of_budget(registry->memory_));
  }
  return registry;
}

Result<void> ModelRegistry::add(ModelConfig config) {
  Lock lock(shared_->mutex);
  if (config.name.empty() || config.name.size() > 512)
    return Error::user("model: its name must have 1 to 512 characters");
  std::vector<std::string> names = config.aliases;
  names.push_back(config.name);
  for (const std::string& name : names)
    for (const auto& [other, entry] : entries_)
      if (called(entry.config, name))
        return Error::user(fmt::format("model '{}': the name is already used for {}; name models as NAME=PATH", name,
                                       entry.config.path));
  order_.push_back(config.name);
  entries_[config.name].config = std::move(config);
  return {};
}

void ModelRegistry::adopt(std::shared_ptr<ServedModel> served) {
  Lock lock(shared_->mutex);
  const std::string name = served->name();
  order_.push_back(name);
  Entry& entry = entries_[name];
  entry.config.name = name;
  entry.config.aliases.assign(served->names.begin() + 1, served->names.end());
  entry.adopted = true;
  entry.slot = std::make_shared<Slot>();
  entry.slot->served = std::move(served);
}

Result<void> ModelRegistry::preload() {
  std::vector<std::string> names;
  {
    Lock lock(shared_->mutex);
    for (const std::string& name : order_)
      if (entries_[name].config.preload) names.push_back(name);
  }
  for (const std::string& name : names) {
    std::promise<Result<void>> done;
    acquire(name, {}, [&](Result<std::shared_ptr<ServedModel>> served) {
      done.set_value(served.ok() ? Result<void>() : Result<void>(served.error()));
    });
    MILLRACE_TRY_VOID(done.get_future().get());
  }
  return {};
}

ModelRegistry::Entry* ModelRegistry::find_locked(const std::string& name) {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

// Adds new models of the folder and removes those whose files are gone.
void ModelRegistry::look_into_folder() {
  if (folder_.none()) return;
  const std::vector<ModelConfig> in_folder = folder_.models();  // before locking, so that requests do not wait
  Lock lock(shared_->mutex);
  std::erase_if(order_, [&](const std::string& name) {
    const Entry& entry = entries_[name];
    const bool gone = entry.config.found && !entry.slot && !entry.queued && !entry.loading &&
                      std::ranges::find(in_folder, name, &ModelConfig::name) == in_folder.end();
    if (gone) entries_.erase(name);
    return gone;
  });
  for (const ModelConfig& model : in_folder) {
    if (std::ranges::any_of(entries_, [&](const auto& other) { return called(other.second.config, model.name); }))
      continue;
    ModelConfig config = options_.found;
    config.name = model.name;
    config.path = model.path;
    config.found = true;
    order_.push_back(config.name);
    entries_[model.name].config = std::move(config);
  }
}

// Adds new models of the store, replaces those that were made again, and removes deleted ones.
void ModelRegistry::look_into_store() {
  if (!options_.store) return;
  std::lock_guard looking(store_mutex_);
  if (!store_due_.exchange(false) && Clock::now() - store_looked_ < kStoreRescan) return;
  store_looked_ = Clock::now();
  const std::vector<StoredModel> models = options_.store->list();
  Lock lock(shared_->mutex);
  std::erase_if(order_, [&](const std::string& name) {
    Entry& entry = entries_[name];
    if (!entry.config.stored || entry.queued || entry.loading) return false;
    const auto found = std::ranges::find(models, name, &StoredModel::name);
    if (found != models.end() && found->created == entry.config.stamp) return false;
    retire_locked(entry);
    entries_.erase(name);
    return true;
  });
  for (const StoredModel& model : models) {
    if (std::ranges::any_of(entries_, [&](const auto& other) { return called(other.second.config, model.name); }))
      continue;
    auto config = stored_model_config(model, options_.found);
    if (!config.ok()) continue;  // parameters of a later version
    order_.push_back(model.name);
    entries_[model.name].config = std::move(*config);
  }
}

std::optional<std::string> ModelRegistry::resolve(const std::string& name) {
  for (const bool again : {false, true}) {
    if (again) look_into_folder();
    if (again) look_into_store();
    Lock lock(shared_->mutex);
    if (name.empty() && !order_.empty()) return order_.front();
    if (name.empty()) continue;
    for (const std::string& wanted : {name, without_latest(name), canonical_model_name(name)})
      for (const auto& [own, entry] : entries_)
        if (called(entry.config, wanted)) return own;
  }
  const auto cached = options_.store ? options_.store->find(name) : std::nullopt;  // OWNER/NAME without its tag
  Lock lock(shared_->mutex);
  if (cached && find_locked(cached->name)) return cached->name;
  if (auto known = known_otherwise_locked(name)) return known;
  return options_.any_name && !order_.empty() ? std::optional(order_.front()) : std::nullopt;
}

std::optional<std::string> ModelRegistry::known_otherwise_locked(const std::string& name) {
  const EmbeddedModel* embedded = name.empty() ? nullptr : find_embedded_model(without_latest(name));
  std::optional<std::string> out;
  for (const std::string& own : order_) {
    const Entry& entry = entries_[own];
    const bool same = embedded && !entry.adopted && find_embedded_model(entry.config.path) == embedded;
    if (same) return own;
    if (!entry.slot || entry.slot->served->model->info().name != name) continue;
    if (out) return std::nullopt;
    out = own;
  }
  return out;
}

// The model is in use until the last copy of the pointer is destroyed. That may happen on the model's own engine
// thread, so the loading thread frees the model instead.
std::shared_ptr<ServedModel> ModelRegistry::lease_locked(Entry& entry, std::optional<double> keep_seconds) {
  Slot& slot = *entry.slot;
  ++slot.open;
  slot.last_use = Clock::now();
  if (keep_seconds && !entry.adopted) slot.keep_seconds = *keep_seconds;
  return {slot.served.get(), [held = entry.slot, shared = shared_](ServedModel*) {
            bool last;
            {
              std::lock_guard lock(shared->mutex);
              held->last_use = Clock::now();
              last = --held->open == 0 && (held->retired || held->keep_seconds >= 0);
            }
            if (last) shared->wake.notify_all();
          }};
}

std::shared_ptr<ServedModel> ModelRegistry::try_acquire(const std::string& name, std::optional<double> keep_seconds) {
  Lock lock(shared_->mutex);
  Entry* entry = find_locked(name);
  return entry && entry->slot && !stop_ ? lease_locked(*entry, keep_seconds) : nullptr;
}

Result<void> ModelRegistry::enqueue_locked(const std::string& name, Entry& entry, Ready& ready) {
  if (stop_) return Error::cancelled("the server is shutting down");
  if (entry.waiting.size() >= options_.most_waiting)
    return Error::resource(fmt::format("model '{}': {} requests are already waiting for it to load; try again later",
                                       name, entry.waiting.size()));
  if (!thread_.joinable()) {
    MILLRACE_TRY(thread_, start_thread("loading of models", [this] { loop(); }));
  }
  entry.waiting.push_back(std::move(ready));
  if (!entry.queued && !(entry.loading && !entry.anew)) {
    entry.queued = true;
    queue_.push_back(name);
    shared_->wake.notify_all();
  }
  return {};
}

void ModelRegistry::acquire(const std::string& name, std::optional<double> keep_seconds, Ready ready) {
  Lock lock(shared_->mutex);
  Entry* entry = find_locked(name);
  Result<std::shared_ptr<ServedModel>> now = std::shared_ptr<ServedModel>();
  if (!entry) {
    now = Error::user(fmt::format("model '{}': unknown model", name));
  } else if (entry->slot && !stop_) {
    now = lease_locked(*entry, keep_seconds);
  } else if (entry->failed_for_good && entry->failed_stamp == stamp_of(entry->config.path)) {
    now = Error{entry->error_kind, entry->error};
  } else {
    if (keep_seconds) entry->keep_seconds = keep_seconds;
    auto queued = enqueue_locked(name, *entry, ready);
    if (queued.ok()) return;
    now = queued.error();
  }
  lock.unlock();
  ready(std::move(now));
}

void ModelRegistry::reload(const std::string& name, const std::string& path, Ready ready) {
  Lock lock(shared_->mutex);
  Entry* entry = find_locked(name);
  Result<void> queued =
      !entry           ? Error::user(fmt::format("model '{}': unknown model", name))
      : entry->adopted ? Error::unsupported(fmt::format("model '{}': was not loaded from a file", name))
      : entry->slot && entry->config.load.memory > 0
          ? Error::resource(fmt::format("model '{}': holds the entire memory budget; unload it first", name))
          : Result<void>();
  if (queued.ok()) {
    entry->anew = true;
    if (!path.empty()) entry->new_path = path;
    queued = enqueue_locked(name, *entry, ready);
  }
  if (queued.ok()) return;
  lock.unlock();
  ready(queued.error());
}

bool ModelRegistry::unload(const std::string& name) {
  Lock lock(shared_->mutex);
  Entry* entry = find_locked(name);
  if (!entry || !entry->slot || entry->adopted) return false;
  retire_locked(*entry);
  return true;
}

void ModelRegistry::retire_locked(Entry& entry) {
  if (!entry.slot) return;
  entry.slot->retired = true;
  shared_->retired.push_back(std::move(entry.slot));
  entry.slot.reset();
  shared_->wake.notify_all();
}

// Retires idle models; returns when the next one is due.
std::optional<Clock::time_point> ModelRegistry::unload_idle_locked() {
  std::optional<Clock::time_point> next;
  for (auto& [name, entry] : entries_) {
    if (!entry.slot || entry.slot->open > 0 || entry.slot->keep_seconds < 0) continue;
    const auto due = entry.slot->last_use + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(std::min(entry.slot->keep_seconds, 1e9)));
    if (due <= Clock::now()) {
      retire_locked(entry);
    } else if (!next || due < *next) {
      next = due;
    }
  }
  return next;
}

// Frees one retired model that no request holds; returns false if there is none.
bool ModelRegistry::dispose_locked(Lock& lock) {
  auto& retired = shared_->retired;
  const auto idle = std::ranges::find_if(retired, [](const auto& slot) { return slot->open == 0; });
  if (idle == retired.end()) return false;
  std::shared_ptr<ServedModel> served = std::move((*idle)->served);
  retired.erase(idle);
  lock.unlock();
  served.reset();  // joins its engine's thread
  lock.lock();
  return true;
}

// Frees the least recently used idle model, and the one being replaced only as a last resort.
bool ModelRegistry::free_memory(const std::string& replaced) {
  Lock lock(shared_->mutex);
  if (stop_) return false;
  if (dispose_locked(lock)) return true;
  Entry* oldest = nullptr;
  const auto before = [&](const Entry& a, const Entry& b) {
    const bool a_last = a.config.name == replaced, b_last = b.config.name == replaced;
    return a_last != b_last ? b_last : a.slot->last_use < b.slot->last_use;
  };
  for (auto& [name, entry] : entries_)
    if (entry.slot && !entry.adopted && entry.slot->open == 0 && (!oldest || before(entry, *oldest))) oldest = &entry;
  if (!oldest) return false;
  retire_locked(*oldest);
  return dispose_locked(lock);
}

void ModelRegistry::load_locked(Lock& lock, const std::string& name) {
  Entry& entry = entries_[name];  // not erased while loading
  entry.queued = false;
  if (entry.slot && !entry.anew) return;  // already loaded: no request is waiting
  entry.loading = true;
  const bool anew = std::exchange(entry.anew, false);
  ModelConfig config = entry.config;
  if (anew && !entry.new_path.empty()) config.path = std::exchange(entry.new_path, {});
  std::vector<Ready> waiting = std::exchange(entry.waiting, {});  // later requests may name another file
  const int64_t stamp = stamp_of(config.path);
  lock.unlock();
  auto loaded = load_served_model(
      config, memory_, [&] { return free_memory(name); }, answers_);
  lock.lock();
  entry.loading = false;
  std::vector<Result<std::shared_ptr<ServedModel>>> answers;
  entry.error = loaded.ok() ? "" : loaded.error().message;
  if (!loaded.ok()) entry.error_kind = loaded.error().kind;
  entry.failed_for_good = !loaded.ok() && loaded.error().kind != ErrorKind::resource && !entry.slot;
  entry.failed_stamp = stamp;
  if (loaded.ok()) {
    retire_locked(entry);
    entry.config.path = config.path;
    entry.slot = std::make_shared<Slot>();
    entry.slot->served = std::move(*loaded);
    entry.slot->keep_seconds = config.idle_seconds;
    if (config.stored) options_.store->note_use(config.name);
    if (!entry.anew && !entry.queued) std::ranges::move(std::exchange(entry.waiting, {}), std::back_inserter(waiting));
  }
  const std::optional<double> keep = std::exchange(entry.keep_seconds, {});
  for (size_t i = 0; i < waiting.size(); ++i)
    answers.push_back(loaded.ok() ? Result(lease_locked(entry, keep))
                                  : Result<std::shared_ptr<ServedModel>>(loaded.error()));
  if (!entry.waiting.empty() && !entry.queued) {
    entry.queued = true;
    queue_.push_back(name);
  }
  lock.unlock();
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i](std::move(answers[i]));
  waiting.clear();
  lock.lock();
}

void ModelRegistry::loop() {
  Lock lock(shared_->mutex);
  while (!stop_) {
    const auto next = unload_idle_locked();
    if (dispose_locked(lock)) continue;
    if (!queue_.empty()) {
      const std::string name = queue_.front();
      queue_.pop_front();
      load_locked(lock, name);
      continue;
    }
    if (next) {
      shared_->wake.wait_until(lock, *next);
    } else {
      shared_->wake.wait(lock);
    }
  }
}

std::shared_ptr<ServedModel> ModelRegistry::first() {
  Lock lock(shared_->mutex);
  const Entry* entry = order_.empty() ? nullptr : find_locked(order_.front());
  return entry && entry->slot ? entry->slot->served : nullptr;
}

AnswerParts ModelRegistry::answer_parts() {
  if (answers_) return answers_->parts();
  if (const auto model = first()) return model->answers->parts();
  Lock lock(shared_->mutex);
  return millrace::answer_parts(order_.empty() ? 0 : entries_[order_.front()].config.load.memory);
}

std::vector<std::shared_ptr<ServedModel>> ModelRegistry::loaded() {
  Lock lock(shared_->mutex);
  std::vector<std::shared_ptr<ServedModel>> out;
  for (const std::string& name : order_)
    if (const Entry* entry = find_locked(name); entry && entry->slot) out.push_back(entry->slot->served);
  return out;
}

std::vector<ModelStatus> ModelRegistry::list() {
  look_into_folder();
  look_into_store();
  Lock lock(shared_->mutex);
  std::vector<ModelStatus> out;
  for (const std::string& name : order_) {
    const Entry& entry = entries_[name];
    ModelStatus status{.name = name, .aliases = entry.config.aliases, .path = entry.config.path, .error = entry.error};
    if (entry.loading || entry.queued) status.state = "loading";
    if (entry.slot) {
      status.state = "loaded";
      status.served = entry.slot->served;
      status.open = entry.slot->open;
      const std::chrono::duration<double> idle =
          entry.slot->open > 0 ? Clock::duration::zero() : Clock::now() - entry.slot->last_use;
      if (entry.slot->keep_seconds >= 0) status.idle_left = std::max(0.0, entry.slot->keep_seconds - idle.count());
    }
    out.push_back(std::move(status));
  }
  return out;
}

void ModelRegistry::stop() {
  std::vector<Ready> waiting;
  {
    Lock lock(shared_->mutex);
    stop_ = true;
  }
  shared_->wake.notify_all();
  if (thread_.joinable()) thread_.join();
  std::vector<std::shared_ptr<Slot>> slots;
  {
    Lock lock(shared_->mutex);
    for (auto& [name, entry] : entries_) {
      std::ranges::move(std::exchange(entry.waiting, {}), std::back_inserter(waiting));
      if (entry.slot) slots.push_back(entry.slot);
    }
    slots.insert(slots.end(), shared_->retired.begin(), shared_->retired.end());
  }
  for (Ready& ready : waiting) ready(Error::cancelled("the server is shutting down"));
  for (const auto& slot : slots) slot->served->stop();  // ends its streams, which then release it
}

}  // namespace millrace
