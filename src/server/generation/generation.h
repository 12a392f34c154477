// Generation: one running request for text. The engine's events are posted to its exchange's strand and serialized
// there; when the client disconnects, the engine's work is cancelled.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "server/api/endpoint.h"
#include "server/generation/answer_memory.h"
#include "server/generation/answer_reader.h"
#include "server/generation/wait_estimate.h"
#include "server/http/http.h"
#include "server/telemetry/adapter_activity.h"

namespace millrace {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  static HttpReply stream_head(const AnswerFormat& format, HttpHeaders headers);
  // `memory` is held until the reply has been sent; null: the request only loads the model.
  static void start(Service& service, const Endpoint& endpoint, GenerationRequest params, HttpHeaders headers,
                    const Exchange& exchange, std::unique_ptr<AnswerMemory::Hold> memory);

 private:
  Generation(Service& service, const Endpoint& endpoint, GenerationRequest params, HttpHeaders headers,
             const Exchange& exchange);
  int64_t scored_top() const;
  void score_prompts();
  void scored(std::vector<std::vector<ChosenToken>> logprobs, const WorkShare& share);
  void submit();
  void answer_empty();
  // The functions below run on the strand.
  void take(size_t prompt, TokenEvent event);
  void read_delta(size_t index, const TokenEvent& event, Delta& delta);
  void note_cached(size_t prompt, const TokenEvent& event);
  void take_finish(size_t prompt, const TokenEvent& event, Choice& choice);
  void fail(const ApiError& error);
  void complete();
  void gone();
  void record();
  void cancel();

  Service& service_;
  const Endpoint& endpoint_;
  const AnswerFormat& format_;
  Exchange exchange_;
  HttpHeaders headers_;
  std::unique_ptr<AnswerMemory::Hold> memory_;  // memory of all members below, until the reply has been sent
  Answer answer_;
  std::vector<RequestId> ids_;
  std::unique_ptr<WaitEntry> waiting_;              // counts in the wait estimate; null: no longer
  std::unique_ptr<AdapterActivity::Use> adapters_;  // null: no adapters, or over
  size_t open_prompts_ = 0;
  std::shared_ptr<std::atomic<bool>> unwanted_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::unique_ptr<AnswerReader>> readers_;  // for each choice
  std::vector<int64_t> cached_;                         // for each prompt: its cached tokens, once they are known
  std::vector<int64_t> last_token_ns_;                  // for each choice, by the engine's clock
  std::vector<std::vector<TokenId>> recorded_;          // for each choice; empty: not recorded
  bool accepted_ = false;                               // the engine has a prompt of it
  bool streaming_ = false;                              // the head has been sent
  bool over_ = false;                                   // answered, failed, or the client has left
  std::chrono::steady_clock::time_point began_;
};

}  // namespace millrace
