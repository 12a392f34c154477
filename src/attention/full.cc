#include "attention/full.h"

#include <algorithm>

#include "attention/block_lines.h"
#include "attention/block_sparse.h"
#include "attention/block_sums.h"
#include "attention/chosen_blocks.h"
#include "attention/codec_tiles.h"
#include "attention/flat_rows.h"
#include "attention/gated_keys.h"
#include "attention/partial.h"
#include "attention/row_formats.h"
#include "attention/shared_prefixes.h"
#include "attention/visible_keys.h"

namespace millrace {
namespace {

// A unit is (span, KV head, tile of queries). A worker runs a unit's partitions one after the other and joins each to
// the total. With few queries, runs of partitions may be separate tasks, joined afterwards. Both ways join the same
// partials in the same order, so the result is bit-identical.
// Query rows (query x head) that share one decoding of a partition's keys and values.
constexpr int64_t kTileRows = kMaxFlatRows;
constexpr int64_t kSplitQueries = 4;   // spans of at most this many queries may be split along their partitions
constexpr int64_t kTasksAWorker = 16;  // for a split span: small tasks, so that a late worker delays little
constexpr int64_t kAheadSlots = 256;   // beyond a partition, for the kernel's prefetch
constexpr int64_t kLineFloats = 16;    // of a cache line

int64_t query_tile(int64_t group) { return std::max<int64_t>(1, kTileRows / group); }

// Two partials, one of them in the scratch of visible keys.
int64_t unit_floats(int64_t group, int64_t head_dim, int64_t value_dim) {
  const int64_t rows = query_tile(group) * group;
  return partial_floats(rows, value_dim) + visible_scratch_floats(rows, group, head_dim, value_dim);
}

struct Unit {
  const BatchSpan* span;
  int64_t head;   // KV head
  int64_t first;  // query in span
  int64_t queries;
  int64_t part_begin;  // first partition with a visible key
  int64_t part_end;
};

// Queries that a partition is read for: query i, of a stream's slot first_slot + i, at q + i * stride floats. Keys from
// slot `end` on are not read.
struct Queries {
  const float* q;
  int64_t stride;
  int64_t count;
  int64_t first_slot;
  int64_t end;
  bool shared = false;  // of several streams, which see all of these keys
};

struct Worker {
  int index;
  const uint8_t** pointers;
};

// Neighbouring members of a group of SharedPrefixes.
struct SharedMembers {
  std::span<const BatchSpan> spans;
  std::span<const int32_t> members;
  std::span<const int32_t> shared;  // with the next one

  int64_t size() const { return std::ssize(members); }
  const BatchSpan& span(int64_t member) const {
    return spans[static_cast<size_t>(members[static_cast<size_t>(member)])];
  }
  // That all of them share; of two members or more.
  int64_t partitions() const { return std::ranges::min(shared.first(shared.size() - 1)); }
  SharedMembers part(int64_t first, int64_t count) const {
    const auto at = static_cast<size_t>(first), n = static_cast<size_t>(count);
    return {spans, members.subspan(at, n), shared.subspan(at, n)};
  }
  // The one at `first` and those after it that share more than `partitions` with it.
  SharedMembers that_share_more(int64_t first, int64_t partitions) const {
    int64_t end = first + 1;
    while (end < size() && shared[static_cast<size_t>(end - 1)] > partitions) ++end;
    return part(first, end - first);
  }
};

struct Attend {
  const Batch& batch;
  AttentionLayer layer;
  const KernelTable& kernels;
  KvPool& kv;
  const AttentionKernel* kernel;
  const float* q;
  float* out;
  int64_t group;
  int64_t tile;               // queries
  const CodecTiles* encoded;  // null: rows
  const AttentionPattern* pattern;
  const DynamicPattern* dynamic;  // `pattern`, if it is one
  const KeyLifetimes* lifetimes;
  double residual_below;   // KvLayout::residual_below
  bool residuals = false;  // all rows are read with them

  Attend with_residuals() const {
    Attend all = *this;
    all.residuals = true;
    return all;
  }

  // Of one of the heads that are apart.
  Attend of_head(int64_t head) const {
    Attend own = *this;
    own.layer = layer.of_head(head);
    own.q += layer.q_column(head);
    own.out += layer.out_column(head);
    return own;
  }

  KeyLifetimes::Span lifetimes_of(const BatchSpan& span) const {
    return lifetimes ? lifetimes->of(span) : KeyLifetimes::Span{};
  }

  const AttentionPattern* pattern_for(const BatchSpan& span) const {
    return pattern && pattern->applies(span.answer) ? pattern : nullptr;
  }
  bool sparse(const BatchSpan& span) const { return pattern_for(span) && span.visibility < 0; }
  SparseTiles tiles() const { return {pattern->block(), tile}; }

  int64_t units_of(const BatchSpan& span) const {
    return layer.kv_heads * (sparse(span) ? tiles().count(span) : (span.count + tile - 1) / tile);
  }

  Unit sparse_unit(const BatchSpan& span, int64_t index) const {
    const int64_t count = tiles().count(span), at = tiles().tile_of(span.first_slot) + index % count;
    const int64_t begin = std::max(span.first_slot, tiles().first_slot(at));
    const int64_t end = std::min(span.first_slot + span.count, tiles().end_slot(at));
    return {&span, index / count, begin - span.first_slot, end - begin, 0, 0};
  }

  Unit unit(const BatchSpan& span, int64_t index) const {
    if (sparse(span)) return sparse_unit(span, index);
    int64_t tiles = (span.count + tile - 1) / tile;
    Unit u{&span, index / tiles, index % tiles * tile, 0, 0, 0};
    u.queries = std::min(tile, span.count - u.first);
    int64_t last_key = span.first_slot + u.first + u.queries;  // exclusive
    int64_t first_key = layer.window > 0 ? std::max<int64_t>(0, span.first_slot + u.first - layer.window + 1) : 0;
    u.part_begin = first_key / kAttentionPartition;
    u.part_end = (last_key + kAttentionPartition - 1) / kAttentionPartition;
    return u;
  }

  Queries queries_of(const Unit& u) const {
    const int64_t width = layer.q_width();
    return {q + (u.span->begin + u.first) * width + u.head * group * layer.head_dim, width, u.queries,
            u.span->first_slot + u.first, u.span->first_slot + u.first + u.queries};
  }

  void run_partition(const Unit& u, int64_t part, bool first, const Partial& partial, const Worker& worker) const {
    read_partition(*u.span, u.head, queries_of(u), part, first, partial, worker);
  }

  // Keys of `span`, for queries of its own or of spans that share them. `first`: the first of the partitions that a
  // worker runs in a row. `pointers` is indexed from slot 0; only the entries of this partition and a few after it are
  // filled.
  void read_partition(const BatchSpan& span, int64_t head, const Queries& queries, int64_t part, bool first,
                      const Partial& partial, const Worker& worker) const {
    const int64_t block_tokens = kv.layout().block_tokens;
    AttentionArgs args;
    args.q = queries.q;
    args.q_stride = queries.stride;
    args.queries = queries.count;
    args.group = group;
    args.head_dim = layer.head_dim;
    args.value_dim = layer.value_dim;
    args.first_query = queries.first_slot;
    args.key_begin = part * kAttentionPartition;
    const int64_t last_key = queries.end;
    args.key_end = std::min(args.key_begin + kAttentionPartition, last_key);
    args.key_ahead = std::min(args.key_end + kAheadSlots, last_key);
    args.cold = first;
    args.window = layer.window;
    args.softcap = layer.softcap;
    args.unify = layer.switches.unify;
    args.unified_max = layer.switches.unified_max;
    set_partial(partial, args);
    const uint8_t** pointers = worker.pointers;
    if (encoded) {
      const CodecKeys keys{span, batch.tables(layer.group).data() + span.table, head};
      return queries.shared ? encoded->attend_encoded(*kernel, keys, args, worker.index, pointers)
                            : encoded->attend(*kernel, keys, args, worker.index, pointers);
    }
    args.block_tokens = block_tokens;
    set_row_formats(kernels, kv, layer.layer, residuals, args);
    const int64_t block_end = (args.key_ahead + block_tokens - 1) / block_tokens;
    const uint8_t** k_blocks = pointers;
    const bool own_values = kv.layout().layers[layer.layer].planes() > 1;
    const uint8_t** v_blocks = own_values ? pointers + block_end : k_blocks;
    const uint8_t* first_keys = kv.keys(layer.layer, 0, head);  // a head's blocks are contiguous
    const uint8_t* first_values = kv.values(layer.layer, 0, head);
    const int64_t key_bytes = block_tokens * args.row_bytes, value_bytes = block_tokens * args.value_row_bytes;
    const auto table = batch.tables(layer.group).begin() + span.table;
    for (int64_t b = args.key_begin / block_tokens; b < block_end; ++b) {
      k_blocks[b] = first_keys + table[b] * key_bytes;
      if (own_values) v_blocks[b] = first_values + table[b] * value_bytes;
    }
    args.k_blocks = k_blocks;
    args.v_blocks = v_blocks;
    kernel->run(args);
  }

  void join(int64_t rows, const Partial& partial, const Partial& total) const {
    join_partial(kernels, rows, layer.values(), partial, total);
  }

  const float* sinks_of(const Unit& u) const { return layer.sinks ? layer.sinks + u.head * group : nullptr; }

  // Divides the total by its sum. In `out` the heads of one query are adjacent, and queries are a whole row apart.
  void finish(const Unit& u, const Partial& total) const {
    const int64_t dims = layer.values(), width = layer.out_width();
    float* row = out + (u.span->begin + u.first) * width + u.head * group * dims;
    for (int64_t i = 0; i < u.queries; ++i, row += width) {
      if (i + 1 < u.queries)
        for (int64_t d = 0; d < group * dims; d += kLineFloats) __builtin_prefetch(row + width + d, 1);
      kernels.attention_merge(1, group, group, dims, total.max + i * group, total.sum + i * group,
                              total.acc + i * group * dims, sinks_of(u), row);
    }
  }

  // The same of the set rows alone.
  void finish_rows(const Unit& u, const Partial& total, const FlatRows& set) const {
    const int64_t dims = layer.values(), width = layer.out_width();
    float* first = out + (u.span->begin + u.first) * width + u.head * group * dims;
    for (int64_t r = 0; r < u.queries * group; ++r)
      if (set[static_cast<size_t>(r)])
        kernels.attention_merge(1, 1, 1, dims, total.max + r, total.sum + r, total.acc + r * dims,
                                layer.sinks ? sinks_of(u) + r % group : nullptr,
                                first + r / group * width + r % group * dims);
  }

  // The rows of a total that are to be computed with residuals.
  FlatRows flat(int64_t rows, const Partial& total) const {
    if (residual_below == 0) return {};
    const FlatRows found = flat_rows(total, rows, residual_below);
    kv.residual_reads().add(rows, static_cast<int64_t>(found.count()));
    return found;
  }

  // The outputs of a head that does not attend.
  void clear(const Unit& u) const {
    const int64_t dims = layer.values(), width = layer.out_width();
    float* first = out + (u.span->begin + u.first) * width + u.head * group * dims;
    for (int64_t i = 0; i < u.queries; ++i) std::fill_n(first + i * width, group * dims, 0.0f);
  }

  // Every partition of a unit; scratch holds two partials.
  void run_unit(const Unit& u, float* scratch, const Worker& worker) const {
    const int64_t rows = u.queries * group;
    const Partial total = partial_at(scratch, rows);
    if (!lifetimes_of(*u.span).attends_with(u.head)) return clear(u);
    sum_unit(u, total, scratch, worker);
    finish(u, total);
    const FlatRows again = flat(rows, total);
    if (again.none()) return;
    with_residuals().sum_unit(u, total, scratch, worker);
    finish_rows(u, total, again);
  }

  // Over the keys that the unit's queries see.
  void sum_unit(const Unit& u, const Partial& total, float* scratch, const Worker& worker) const {
    const int64_t rows = u.queries * group;
    const Partial partial = partial_at(scratch + partial_floats(rows, layer.values()), rows);
    VisibleUnit visible{batch, *u.span, layer, kernels, kv, *kernel, q, u.head, u.first, u.queries};
    visible.residuals = residuals;
    visible.encoded = encoded;
    visible.worker = worker.index;
    const KeyLifetimes::Span own = lifetimes_of(*u.span);
    if (own.hides()) return attend_gated(visible, own, total, partial);
    const AttentionPattern* own_pattern = pattern_for(*u.span);
    if (u.span->visibility >= 0) return attend_visible(visible, dynamic ? nullptr : own_pattern, total, partial.max);
    if (own_pattern && dynamic)
      return attend_chosen(visible, *dynamic, total, partial, worker.pointers,
                           scratch + unit_floats(group, layer.head_dim, layer.values()));
    if (own_pattern) return attend_blocks(visible, *own_pattern, total, partial, worker.pointers);
    for (int64_t part = u.part_begin; part < u.part_end; ++part) {
      run_partition(u, part, part == u.part_begin, part == u.part_begin ? total : partial, worker);
      if (part > u.part_begin) join(rows, partial, total);
    }
  }

  // Members of a group of spans, for one KV head. The scratch holds two partials and the queries.
  void run_group(const SharedMembers& shared, int64_t head, float* scratch, const Worker& worker) const {
    const int64_t rows = shared.size() * group, dims = layer.values(), width = group * layer.head_dim;
    const Partial total = partial_at(scratch, rows);
    const Partial partial = partial_at(scratch + partial_floats(rows, dims), rows);
    float* gathered = scratch + 2 * partial_floats(rows, dims);
    for (int64_t i = 0; i < shared.size(); ++i)
      std::copy_n(queries_of(unit(shared.span(i), head)).q, width, gathered + i * width);
    run_members(shared, 0, head, gathered, total, partial, worker);
  }

  // Partitions that all members share, and see encoded where a codec encodes keys.
  int64_t read_at_once(const SharedMembers& shared) const {
    int64_t end = shared.partitions();
    for (int64_t i = 0; encoded && i < shared.size(); ++i)
      end =
          std::min(end, encoded->first_raw(shared.span(i).first_slot) * kv.layout().block_tokens / kAttentionPartition);
    return end;
  }

  // From partition `from` on: those that all of them share at once, then the members that share more, and each alone.
  void run_members(const SharedMembers& shared, int64_t from, int64_t head, const float* gathered, const Partial& total,
                   const Partial& partial, const Worker& worker) const {
    const int64_t dims = layer.values(), width = group * layer.head_dim;
    const auto add = [&](int64_t part, int64_t rows, const auto& read) {
      read(part == 0 ? total : partial);
      if (part > 0) join(rows, partial, total);
    };
    if (shared.size() == 1) {
      const Unit u = unit(shared.span(0), head);
      for (int64_t part = from; part < u.part_end; ++part)
        add(part, group, [&](const Partial& into) { run_partition(u, part, part == from, into, worker); });
      return finish(u, total);
    }
    const int64_t end = std::max(from, read_at_once(shared));
    const int64_t end_slot = end * kAttentionPartition;  // every query sees all before it
    const Queries all{gathered, width, shared.size(), end_slot, end_slot, true};
    for (int64_t part = from; part < end; ++part)
      add(part, shared.size() * group,
          [&](const Partial& into) { read_partition(shared.span(0), head, all, part, part == from, into, worker); });
    for (int64_t first = 0; first < shared.size();) {
      const SharedMembers more = end < shared.partitions() ? shared.part(first, 1) : shared.that_share_more(first, end);
      run_members(more, end, head, gathered + first * width, total.from(first * group, dims), partial, worker);
      first += more.size();
    }
  }
};

int64_t partitions(int64_t context) { return (context + kAttentionPartition - 1) / kAttentionPartition + 1; }

// Two partials, and the queries of a group of spans.
int64_t group_floats(int64_t group, int64_t head_dim, int64_t value_dim) {
  const int64_t rows = query_tile(group) * group;
  return std::max(2 * partial_floats(rows, value_dim) + rows * head_dim, unit_floats(group, head_dim, value_dim));
}

// Floats of each partition, and of the total with residuals.
int64_t split_floats(int64_t context, int64_t group, int64_t value_dim) {
  return (partitions(context) + 1) * partial_floats(std::min(kSplitQueries, query_tile(group)) * group, value_dim);
}

// Few queries over many partitions: runs of partitions of every head become separate tasks.
void attend_split(const Attend& a, const BatchSpan& span, ThreadPool& pool, float* scratch, int64_t slot,
                  const uint8_t** pointers, int64_t pointer_slot) {
  const Unit whole = a.unit(span, 0);
  const int64_t rows = whole.queries * a.group, heads = a.layer.kv_heads;
  const int64_t size = partial_floats(rows, a.layer.values());
  const int64_t parts = whole.part_end - whole.part_begin;
  const int64_t run = std::max<int64_t>(1, heads * parts / (kTasksAWorker * pool.threads()));
  const int64_t runs = (parts + run - 1) / run;
  const KeyLifetimes::Span lifetimes = a.lifetimes_of(span);
  const auto at = [&](int64_t head, int64_t place) { return partial_at(scratch + head * slot + place * size, rows); };
  // Partials of the heads that are read go to the places 0, 1, ... but the first one, which becomes the total.
  const auto read = [&](const Attend& by, int64_t first, const auto& reads, const auto& finish) {
    const auto place = [&](int64_t p) { return p == 0 ? first : p; };
    const auto end = [&](int64_t head) {
      if (!reads(head)) return;
      const Partial total = at(head, first);
      for (int64_t p = 1; p < parts; ++p) by.join(rows, at(head, place(p)), total);
      finish(head, total);
    };
    pool.parallel_for(heads * runs, [&](int64_t task, int worker) {
      const int64_t head = task / runs, begin = task % runs * run;
      const Unit u = by.unit(span, head);
      for (int64_t p = begin; reads(head) && p < std::min(parts, begin + run); ++p)
        by.run_partition(u, u.part_begin + p, p == begin, at(head, place(p)),
                         {worker, pointers + worker * pointer_slot});
      if (runs == 1) end(head);
    });
    if (runs > 1) pool.parallel_for(heads, [&](int64_t head, int) { end(head); });
  };
  const auto attends = [&](int64_t head) { return lifetimes.attends_with(head); };
  for (int64_t head = 0; head < heads; ++head)
    if (!attends(head)) a.clear(a.unit(span, head));
  read(a, 0, attends, [&](int64_t head, const Partial& total) { a.finish(a.unit(span, head), total); });
  if (a.residual_below == 0) return;
  bool any = false;
  for (int64_t head = 0; head < heads; ++head) any |= attends(head) && a.flat(rows, at(head, 0)).any();
  if (!any) return;
  const auto flat = [&](int64_t head) { return flat_rows(at(head, 0), rows, a.residual_below); };
  read(
      a.with_residuals(), parts, [&](int64_t head) { return attends(head) && flat(head).any(); },
      [&](int64_t head, const Partial& total) { a.finish_rows(a.unit(span, head), total, flat(head)); });
}

// Spans have slots and tables of their own in each head. `scratch` floats and `pointers` of each worker.
void attend_apart(const Attend& a, ThreadPool& pool, float* scratch, int64_t slot, const uint8_t** pointers,
                  int64_t pointer_slot) {
  const int64_t heads = a.layer.kv_heads;
  const auto tiles_of = [&](const BatchSpan& span) { return (span.count + a.tile - 1) / a.tile; };
  int64_t tiles = 0;
  for (const BatchSpan& span : a.batch.spans) tiles += tiles_of(span);
  pool.parallel_for(heads * tiles, [&](int64_t index, int worker) {
    const int64_t head = index % heads;
    const std::vector<BatchSpan>& spans = a.batch.spans_of(a.layer.group + head);
    int64_t tile = index / heads;
    size_t s = 0;
    while (tile >= tiles_of(spans[s])) tile -= tiles_of(spans[s++]);
    const Attend own = a.of_head(head);
    own.run_unit(own.unit(spans[s], tile), scratch + worker * slot, {worker, pointers + worker * pointer_slot});
  });
}

}  // namespace

AttentionLayer AttentionLayer::of_head(int64_t head) const {
  AttentionLayer own = *this;
  own.layer += head;
  own.group += head;
  own.heads = group_heads();
  own.kv_heads = 1;
  own.per_head_tables = false;
  if (sinks) own.sinks = sinks + head * group_heads();
  own.row_heads = row_heads > 0 ? row_heads : heads;
  return own;
}

int64_t attention_scratch_floats(int64_t threads, int64_t context, int64_t group, int64_t head_dim, int64_t kv_heads,
                                 int64_t value_dim, const AttentionSwitches& switches) {
  if (value_dim == 0) value_dim = head_dim;
  const int64_t unit = std::max(
      group_floats(group, head_dim, value_dim),
      unit_floats(group, head_dim, value_dim) +
          chosen_blocks_floats(dynamic_pattern(switches.pattern), context, query_tile(group), group, head_dim));
  const int64_t lines = line_scratch_floats(dynamic_pattern(switches.pattern), context, group, head_dim, value_dim);
  const int64_t sums = sum_scratch_floats(dynamic_pattern(switches.pattern), context, group, head_dim, value_dim);
  return std::max(threads * std::max({unit, lines, sums}), kv_heads * split_floats(context, group, value_dim));
}

int64_t attention_scratch_pointers(int64_t threads, int64_t context, int64_t block_tokens) {
  return threads * 2 * (context / block_tokens + 2);
}

void attend(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool, KvPool& kv,
            const float* q, float* out, int64_t context, float* scratch, const uint8_t** pointers,
            const CodecTiles* tiles, const SharedPrefixes* prefixes, const KeyLifetimes* lifetimes) {
  const int64_t group = layer.heads / layer.kv_heads;
  const Attend a{batch,
                 layer,
                 kernels,
                 kv,
                 &attention_kernel(kernels, kv.layout()),
                 q,
                 out,
                 group,
                 query_tile(group),
                 tiles,
                 pattern_of(layer, context),
                 dynamic_pattern(pattern_of(layer, context)),
                 lifetimes && !lifetimes->spans.empty() ? lifetimes : nullptr,
                 kv.layout().residual_below};
  const int64_t pointer_slot = attention_scratch_pointers(1, context, kv.layout().block_tokens);
  if (layer.per_head_tables)
    return attend_apart(a, pool, scratch, unit_floats(group, layer.head_dim, layer.values()), pointers, pointer_slot);
  const std::vector<BatchSpan>& spans = batch.spans_of(layer.group);
  // Splits a lone short span along its keys if its heads alone would not keep every worker busy.
  if (spans.size() == 1 && spans[0].count <= std::min(kSplitQueries, a.tile) && pool.threads() > 1 &&
      spans[0].visibility < 0 && !a.pattern_for(spans[0]) && !a.lifetimes_of(spans[0]).hides()) {
    attend_split(a, spans[0], pool, scratch, split_floats(context, group, layer.values()), pointers, pointer_slot);
    return;
  }
  if (layer.window > 0 || layer.group > 0 || a.pattern || a.lifetimes || a.residual_below > 0 ||
      (prefixes && prefixes->groups().empty()))
    prefixes = nullptr;
  // Members of a group that one task serves: few enough that every worker has one.
  const int64_t pieces = (pool.threads() + layer.kv_heads - 1) / layer.kv_heads;
  const auto members_each = [&](const SharedPrefixes::Group& g) {
    return std::min(a.tile, (g.members + pieces - 1) / pieces);
  };
  const auto tasks_of = [&](const SharedPrefixes::Group& g) {
    return layer.kv_heads * ((g.members + members_each(g) - 1) / members_each(g));
  };
  const auto units_of = [&](size_t s) { return prefixes && prefixes->grouped(s) ? 0 : a.units_of(spans[s]); };
  int64_t units = 0;
  if (prefixes)
    for (const auto& g : prefixes->groups()) units += tasks_of(g);
  for (size_t s = 0; s < spans.size(); ++s) units += units_of(s);
  const int64_t slot = prefixes ? group_floats(group, layer.head_dim, layer.values())
                                : unit_floats(group, layer.head_dim, layer.values()) +
                                      chosen_blocks_floats(a.dynamic, context, a.tile, group, layer.head_dim);
  pool.parallel_for(units, [&](int64_t index, int worker) {
    float* own = scratch + worker * slot;
    const Worker by{worker, pointers + worker * pointer_slot};
    if (prefixes) {
      for (const auto& g : prefixes->groups()) {
        if (index >= tasks_of(g)) {
          index -= tasks_of(g);
          continue;
        }
        const int64_t each = members_each(g), first = index / layer.kv_heads * each;
        const SharedMembers all{spans, prefixes->members(g), prefixes->shared(g)};
        return a.run_group(all.part(first, std::min(each, g.members - first)), index % layer.kv_heads, own, by);
      }
    }
    size_t s = 0;
    while (index >= units_of(s)) index -= units_of(s++);
    a.run_unit(a.unit(spans[s], index), own, by);
  });
}

}  // namespace millrace
