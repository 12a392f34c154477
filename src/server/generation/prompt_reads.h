// Prompts that are read (PromptReader) and not answered: scores, embeddings, rankings. They run in the engine's steps
// as requests without an answer, in its queue, under its policy and in its KV pool.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "millrace/engine.h"
#include "server/generation/fair_worker.h"

namespace millrace {

struct PromptRead {
  std::vector<TokenId> tokens;
  std::shared_ptr<PromptReader> reader;
};

// Waits until all are read, or for room in the engine's queue. A reader is no longer called once this has returned, but
// for a moment after `unwanted` or `stopping`, so it owns what it writes to. Errors: cancelled (one of these), those of
// Engine::submit() but a full queue.
Result<void> read_prompts(Engine& engine, const std::vector<PromptRead>& prompts, const WorkShare& share,
                          const std::atomic<bool>& unwanted, const std::atomic<bool>& stopping);

}  // namespace millrace
