// StableLoad: when a stream may start, so that the sum of the lengths of all running streams never exceeds a limit (He
// and Zhai, 2024, "FastDecode", section 4.2). Attention over stored keys takes time in proportion to that sum. Streams
// that start together also grow together: B streams of S tokens add up to B S at their last step. If B F / S of them
// start every F steps, the sum rises to B (S + F) / 2 and stays there.
//
//   sum of lengths | all at once:    /|  /|       every F steps:  ______
//                  |               /  |/  |                     /
//
// Every stream gains one token a step, so the sum rises until a stream ends, and is largest at an end. A stream that
// starts now fits if the sums at all later ends, and at its own, stay within the limit. Plain data; steps count from
// the present one.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

class StableLoad {
 public:
  // Largest sum with `streams` streams of `tokens` tokens, of which equal parts start every `interval` steps.
  static double steady_sum(double streams, double tokens, double interval) { return streams * (tokens + interval) / 2; }
  // Streams that start together for that: streams * interval / tokens.
  static double group_streams(double streams, double tokens, double interval) { return streams * interval / tokens; }
  // The inverse of steady_sum(): streams at once whose sum rises to `limit`, if each has `length` tokens at its start
  // and runs for `steps` steps.
  static double streams_for(double limit, double length, double steps, double interval) {
    return limit / (length + (steps + interval) / 2);
  }

  explicit StableLoad(int64_t limit) : limit_(limit) {}
  void clear() { streams_.clear(); }
  int64_t limit() const { return limit_; }

  // Adds a stream that has `length` tokens at step `start` and runs for `steps` steps.
  void add(int64_t start, int64_t length, int64_t steps) { streams_.push_back({start, length, steps}); }
  // Sum of lengths at step `at`; a stream counts up to and at its last step.
  int64_t sum_at(int64_t at) const;
  // Returns true if the stream may start at step `start`.
  bool fits(int64_t start, int64_t length, int64_t steps) const;
  // Returns the first step, from 0 on, at which the stream may start. If it never fits, the step after the last end, at
  // which it runs alone.
  int64_t first_start(int64_t length, int64_t steps) const;

 private:
  struct Stream {
    int64_t start = 0, length = 0, steps = 0;
    int64_t end() const { return start + steps; }
  };

  int64_t limit_;
  std::vector<Stream> streams_;
};

}  // namespace millrace
