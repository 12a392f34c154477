// Prompts that are read (PromptReader) and not answered: scores, embeddings, rankings. They run in the engine's steps
// as requests without an answer, in its queue, under its policy and in its KV pool.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "millrace/engine.h"
#include "server/api/api_error.h"
#include "server/generation/fair_worker.h"

namespace millrace {

struct GenerationRequest;

struct PromptRead {
  std::vector<TokenId> tokens;
  std::shared_ptr<PromptReader> reader;
};

// Tenant and limits of a request whose prompts are read.
struct ReadTerms {
  const WorkShare& share;
  std::shared_ptr<QueuePlace> place;  // so that a full queue does not stop them
  const std::atomic<bool>& unwanted;  // the client has left
  const std::atomic<bool>& stopping;  // the worker ends
  const FairWorker& worker;           // that waits for them, with the work behind them
};

// Waits until all are read. After this has returned no reader is called again, with one exception: for a moment after
// `unwanted`, `stopping` or the time limit. So a reader must own the memory that it writes to. Errors: cancelled (one
// of these), those of Engine::submit() except a full queue.
Result<void> read_prompts(Engine& engine, const std::vector<PromptRead>& prompts, const ReadTerms& terms);

// A place in the engine's queue for the request: first for reading its prompts, then for its first prompt's answer.
// Errors: resource (queue full).
Result<std::shared_ptr<QueuePlace>> take_place(const GenerationRequest& params);

// The response to a client whose prompts could not be read.
ApiError reading_error(const Error& error, const WorkShare& share);

}  // namespace millrace
