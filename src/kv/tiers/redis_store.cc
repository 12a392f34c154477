#include "kv/tiers/redis_store.h"

#include <fmt/format.h>

#include <chrono>

#include "kv/tiers/redis_link.h"
#include "kv/tiers/remote_store.h"

namespace millrace {
namespace {

using std::chrono::steady_clock;

// Returns true if the error will be the same at the next attempt.
bool is_refusal(const std::string& error) {
  return error.starts_with("NOAUTH") || error.starts_with("WRONGPASS") || error.starts_with("NOPERM") ||
         (error.starts_with("ERR") && error.find("max number of clients") == std::string::npos);
}

// Blocks as values of a Redis server:
//
//   TOUCH key ...   a question for a block                   GETRANGE key 0 n   its image
//   SET key image   stores an image, with the time to live
class RedisBlocks final : public RemoteLink {
 public:
  RedisBlocks(const RedisStoreOptions& options, const StoreIdentity& identity, int64_t image_bytes)
      : options_(options),
        names_(fmt::format("{}:{:016x}{:016x}:", options.prefix, identity.high, identity.low)),
        range_(std::to_string(image_bytes)),  // one byte more than a whole image has
        link_(image_bytes + 1) {}

  bool connect(double seconds, std::string& refusal) override {
    return link_.connect(options_.host, options_.port, seconds) && greet(seconds, refusal);
  }
  bool open() const override { return link_.open(); }
  void close() override { link_.close(); }
  void ask(const PrefixKey& key, uint64_t /*lease*/) override { link_.send({"TOUCH", name_of(key)}); }
  void fetch(const PrefixKey& key, uint64_t /*lease*/) override { link_.send({"GETRANGE", name_of(key), "0", range_}); }
  void store(const PrefixKey& key, std::string_view image) override {
    const std::string name = name_of(key);
    if (options_.ttl_seconds > 0)
      link_.send({"SET", name, image, "EX", std::to_string(options_.ttl_seconds)});
    else
      link_.send({"SET", name, image});
  }
  int64_t unsent_bytes() const override { return link_.unsent_bytes(); }
  void move(int wake, double seconds) override { link_.move(wake, seconds); }
  std::optional<RemoteReply> next() override { return link_.next(); }

 private:
  bool greet(double seconds, std::string& refusal);
  std::string name_of(const PrefixKey& key) const { return names_ + fmt::format("{:016x}{:016x}", key.high, key.low); }

  const RedisStoreOptions options_;
  const std::string names_, range_;  // prefix of every key; the last byte asked for
  RedisLink link_;
};

// Logs in, chooses the database, and checks that it is Redis that answers.
bool RedisBlocks::greet(double seconds, std::string& refusal) {
  int64_t expected = 1;
  if (!options_.password.empty()) {
    ++expected;
    if (options_.user.empty())
      link_.send({"AUTH", options_.password});
    else
      link_.send({"AUTH", options_.user, options_.password});
  }
  if (options_.database != 0) {
    ++expected;
    link_.send({"SELECT", std::to_string(options_.database)});
  }
  link_.send({"PING"});
  const auto begun = steady_clock::now();
  while (expected > 0) {
    const double left = seconds - std::chrono::duration<double>(steady_clock::now() - begun).count();
    if (!link_.open() || left < 0) return false;
    link_.move(-1, left);
    while (const auto reply = link_.next()) {
      if (reply->kind == RemoteReply::Kind::error && is_refusal(reply->text)) refusal = reply->text.substr(0, 200);
      if (reply->kind != RemoteReply::Kind::status) return false;
      if (--expected == 0) return reply->text == "PONG";
    }
  }
  return false;
}

}  // namespace

int64_t redis_store_memory(const KvLayout& layout) { return RemoteStore::max_bytes(layout); }

Result<std::unique_ptr<PrefixStore>> make_redis_store(KvPool& pool, const RedisStoreOptions& options) {
  const StoreIdentity identity = store_identity(identity_text(pool.layout(), options.identity_text));
  auto link = std::make_unique<RedisBlocks>(options, identity, ImageShape::of(pool.layout()).image_bytes());
  auto store =
      std::make_unique<RemoteStore>(pool, std::move(link), RemoteTimes{options.deadline_seconds, options.retry_seconds},
                                    options.identity_text, "redis", true);
  if (!store->started())
    return Error::resource("KV store: the system starts no thread for it; raise its limit of threads");
  if (const std::string refusal = store->refusal(); !refusal.empty())
    return Error::user("KV store: the Redis server refuses the connection: " + refusal);
  return std::unique_ptr<PrefixStore>(std::move(store));
}

}  // namespace millrace
