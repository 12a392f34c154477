// A file for keys and values of running streams, which the layers of a pass read in turn.
#include <fmt/format.h>

#include "base/memory_accounts.h"
#include "kv/tiers/members/records.h"

namespace millrace {

const TierMember kDiskTier = {
    .stream = [](const OptionValues& given) -> Result<KeyStreamOptions> {
      KeyStreamOptions options;
      options.folder = given.text("path");
      options.reads_ahead = given.integer("ahead") != 0;
      if (options.folder.empty())
        return Error::user("KV tier disk: needs a folder on a fast disk for its file, path=FOLDER");
      const auto bytes = parse_bytes(given.text("memory"));
      if (!bytes.ok()) return Error::user("KV tier disk: memory: " + bytes.error().message);
      if (*bytes < 0) return Error::user(fmt::format("KV tier disk: memory: must not be negative, got {}", *bytes));
      options.memory = *bytes;
      return options;
    },
};

}  // namespace millrace
