// AdapterActivity: the LoRA adapters that requests wait for and run with. Routers in front of several servers read them
// to send a request where its adapter already runs. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace millrace {

class AdapterActivity {
 public:
  // One request's use of adapters: waiting from its construction, running after run(), over with its destruction.
  class Use {
   public:
    Use(AdapterActivity& activity, std::vector<std::string> adapters);
    ~Use();
    Use(const Use&) = delete;
    void run();

   private:
    AdapterActivity& activity_;
    std::vector<std::string> adapters_;
    bool running_ = false;
  };

  struct Lists {
    std::string waiting, running;  // names, separated by commas
    double changed = 0;            // Unix seconds of the last change; 0: none yet
  };
  Lists lists() const;

 private:
  struct Counts {
    int waiting = 0, running = 0;
  };
  void change(const std::vector<std::string>& adapters, int waiting, int running);

  mutable std::mutex mutex_;
  std::map<std::string, Counts> counts_;  // only adapters in use
  double changed_ = 0;
};

}  // namespace millrace
