#include "engine/make_streams.h"

#include <algorithm>
#include <iterator>

#include "engine/answer_group.h"
#include "engine/beam_group.h"
#include "engine/placed_documents.h"
#include "engine/request_check.h"
#include "engine/token_evictions.h"

namespace millrace {
namespace {

int64_t after_ns(int64_t now, double seconds) { return seconds > 0 ? now + static_cast<int64_t>(seconds * 1e9) : 0; }

class StreamMaker {
 public:
  StreamMaker(LoopContext& loop, PrefixCache& cache, RequestId id, int64_t submitted_ns)
      : loop_(loop), cache_(cache), id_(id), submitted_ns_(submitted_ns) {}

  Result<StreamPtr> make(int64_t answer, Request request) {
    auto stream = std::make_unique<LiveStream>();
    Sequence& s = stream->sequence;
    s.id = answer_stream(id_, answer);
    s.tokens = request.prompt;
    s.prompt_tokens = s.size();
    MILLRACE_TRY(auto rule, loop_.eviction_rule(request));
    s.max_total = longest_stream(request, loop_.context(), rule.get());
    s.times.submitted = submitted_ns_ > 0 ? submitted_ns_ : loop_.now();
    s.times.deadline = after_ns(s.times.submitted, request.deadline_seconds);
    s.times.time_limit = after_ns(s.times.submitted, request.time_limit_seconds);
    s.request = std::move(request);
    s.kv.by_layer = loop_.kv().divided();
    if (s.kv.by_layer) s.kv.windows.resize(static_cast<size_t>(loop_.kv().groups() - 1));
    MILLRACE_TRY_VOID(loop_.executor->chooser().begin(stream->ref()));
    MILLRACE_TRY(const auto context, loop_.context_of(s.request));
    if (context) stream->context = context->plan(s.request.documents);
    const DocumentPlacer* placer = loop_.executor->documents();
    if (context && placer && placer->places_parts()) stream->context = place_parts(std::move(stream->context));
    if (rule) begin_eviction(*stream, std::move(rule));
    note_eviction(*stream);
    note_border(*stream);
    s.prompt_apart = loop_.executor->limits().prompts_apart;
    s.prefix.caches =
        cache_.index() && s.request.cache_prompt && !s.request.reader && !stream->eviction && stream->context.empty();
    s.prefix.scope = cache_.scope_of(s.request, stream->own.adapters, !stream->context.empty());
    return stream;
  }

  Result<std::vector<StreamPtr>> make_answers(Request request) {
    const int64_t answers = std::max(request.n, request.best_of);
    auto group = answers > 1 ? std::make_shared<AnswerGroup>(answers, request.n) : nullptr;
    std::vector<StreamPtr> streams;
    for (int64_t answer = 0; answer < answers; ++answer) {
      Request one = answer + 1 == answers ? std::move(request) : request;
      one.sampling.seed += static_cast<uint64_t>(answer);
      MILLRACE_TRY(auto stream, make(answer, std::move(one)));
      stream->sequence.parent = answer > 0 && !stream->eviction && stream->context.empty() ? id_ : 0;
      stream->answers = group;
      stream->own.scored = group && group->ranks();
      streams.push_back(std::move(stream));
    }
    return streams;
  }

  // The first beam; the others are parked in its group until it is admitted.
  Result<std::vector<StreamPtr>> make_beams(const Request& request) {
    BeamOptions options{request.beams, request.length_penalty, request.early_stopping, 0, request.min_tokens, {}};
    options.max_tokens =
        longest_stream(request, loop_.context(), nullptr) - static_cast<int64_t>(request.prompt.size());
    if (!request.ignore_eos) options.end_tokens = loop_.executor->chooser().end_tokens();
    auto group = std::make_shared<BeamGroup>(
        BeamGroup{BeamSearch(std::move(options), request.sampling.logprobs), request.n, {}, {}, {}, {}, 0, false});
    std::vector<StreamPtr> streams;
    for (int64_t slot = 0; slot < request.beams; ++slot) {
      MILLRACE_TRY(auto stream, make(slot, request));
      Sequence& s = stream->sequence;
      s.non_preemptible = true;
      s.width = slot == 0 ? request.beams : 1;
      if (slot == 0) {
        stream->beams = group;
      } else {
        empty_slot(s);
        s.request.prompt.clear();
      }
      group->slots.push_back(stream.get());
      streams.push_back(std::move(stream));
    }
    group->live = {group->slots.front()};
    group->candidates.resize(1);
    group->parked.assign(std::make_move_iterator(streams.begin() + 1), std::make_move_iterator(streams.end()));
    streams.resize(1);
    return streams;
  }

 private:
  // A stream with an evictor shares no blocks: it moves keys and values within them.
  void begin_eviction(LiveStream& stream, std::shared_ptr<const EvictionRule> rule) {
    Sequence& s = stream.sequence;
    stream.eviction = std::make_unique<TokenEviction>(std::move(rule), s.prompt_tokens, s.max_total,
                                                      loop_.kv().layout().heads(), loop_.kv().layout().tables());
  }

  LoopContext& loop_;
  PrefixCache& cache_;
  RequestId id_;
  int64_t submitted_ns_;
};

}  // namespace

Result<std::vector<StreamPtr>> make_streams(LoopContext& loop, PrefixCache& cache, RequestId id, Request request,
                                            int64_t submitted_ns) {
  StreamMaker maker(loop, cache, id, submitted_ns);
  return request.beams > 1 ? maker.make_beams(request) : maker.make_answers(std::move(request));
}

}  // namespace millrace
