// A file on a fast disk for blocks evicted from the prefix index.
#include <fmt/format.h>

#include "base/memory_accounts.h"
#include "kv/tiers/members/records.h"
#include "kv/tiers/ssd_store.h"

namespace millrace {
namespace {

constexpr int64_t kMaxStoreBytes = int64_t{1} << 50;

Result<SsdStoreOptions> ssd_options(const OptionValues& given) {
  SsdStoreOptions options;
  options.path = given.text("path");
  if (options.path.empty()) return Error::user("KV store: needs a file, path=...");
  const auto bytes = parse_bytes(given.text("size"));
  if (!bytes.ok()) return Error::user("KV store: size: " + bytes.error().message);
  if (*bytes < 1 || *bytes > kMaxStoreBytes)
    return Error::user(fmt::format("KV store: size: must be between 1 and {} bytes, got {}", kMaxStoreBytes, *bytes));
  options.bytes = *bytes;
  MILLRACE_TRY(options.order, find_store_order(given.text("order")));
  options.deadline_seconds = static_cast<double>(given.integer("deadline_ms")) * 1e-3;
  return options;
}

}  // namespace

const StoreMember kSsdStore = {
    .memory = [](const KvLayout& layout, const OptionValues& given) -> Result<int64_t> {
      MILLRACE_TRY(const SsdStoreOptions options, ssd_options(given));
      return ssd_store_memory(layout, options);
    },
    .make = [](KvPool& pool, std::string identity, const OptionValues& given) -> Result<std::unique_ptr<PrefixStore>> {
      MILLRACE_TRY(SsdStoreOptions options, ssd_options(given));
      options.identity_text = std::move(identity);
      return make_ssd_store(pool, options);
    },
};

}  // namespace millrace
