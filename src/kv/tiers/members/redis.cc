// A Redis server for blocks that several engines share.
#include <cstdlib>

#include "kv/tiers/members/records.h"
#include "kv/tiers/redis_store.h"

namespace millrace {
namespace {

Result<RedisStoreOptions> redis_options(const OptionValues& given) {
  RedisStoreOptions options;
  options.host = given.text("host");
  options.port = static_cast<int>(given.integer("port"));
  options.database = given.integer("db");
  options.user = given.text("user");
  options.prefix = given.text("prefix");
  options.ttl_seconds = given.integer("ttl");
  options.deadline_seconds = static_cast<double>(given.integer("deadline_ms")) * 1e-3;
  const std::string& variable = given.text("password_env");
  if (options.host.empty()) return Error::user("KV store: needs a server, host=...");
  if (!options.user.empty() && variable.empty())
    return Error::user("KV store: user: a user needs a password, password_env=NAME");
  if (variable.empty()) return options;
  const char* password = std::getenv(variable.c_str());
  if (!password || !*password)
    return Error::user("KV store: password_env: the environment has no variable " + variable);
  options.password = password;
  return options;
}

}  // namespace

const StoreMember kRedisStore = {
    .memory = [](const KvLayout& layout, const OptionValues& given) -> Result<int64_t> {
      MILLRACE_TRY_VOID(redis_options(given));
      return redis_store_memory(layout);
    },
    .make = [](KvPool& pool, std::string identity, const OptionValues& given) -> Result<std::unique_ptr<PrefixStore>> {
      MILLRACE_TRY(RedisStoreOptions options, redis_options(given));
      options.identity_text = std::move(identity);
      return make_redis_store(pool, options);
    },
};

}  // namespace millrace
