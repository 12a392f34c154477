// ResponseStore: responses of /v1/responses stored for previous_response_id and later retrieval. In memory, bounded by
// count and bytes. The tenant that has the most loses its least recently used response first, so that a tenant below
// its share loses nothing to the others. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/json.h"

namespace millrace {

struct StoredResponse {
  Json response;
  Json messages;                // the conversation including this response, for chat templates, without instructions
  Json input = Json::array();   // its input items, oldest first
  Json deltas = Json::array();  // the sizes of the pieces in which each output item was streamed
};

class ResponseStore {
 public:
  ResponseStore(int64_t most, int64_t most_bytes) : most_(most), most_bytes_(most_bytes) {}

  bool keeps() const { return most_ > 0 && most_bytes_ > 0; }
  // `tenant`: whose share the response counts against.
  void put(const std::string& tenant, const std::string& id, StoredResponse response);
  std::optional<StoredResponse> get(const std::string& id);
  bool erase(const std::string& id);

  int64_t count() const;
  int64_t bytes() const;

 private:
  struct Entry {
    std::string response, messages, input, deltas;  // serialized: smaller, and of known size
    std::string tenant;
    std::list<std::string>::iterator use;
    uint64_t used = 0;  // number of its latest use, among all tenants'
    int64_t bytes() const {
      return static_cast<int64_t>(response.size() + messages.size() + input.size() + deltas.size() + 256);
    }
  };
  struct Tenant {
    std::list<std::string> uses;  // its ids, most recent first
    int64_t bytes = 0;
    int64_t count() const { return static_cast<int64_t>(uses.size()); }
  };
  void drop(std::unordered_map<std::string, Entry>::iterator entry);
  void drop_one(bool by_bytes);

  const int64_t most_, most_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::map<std::string, Tenant> tenants_;  // those that have responses
  int64_t bytes_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace millrace
