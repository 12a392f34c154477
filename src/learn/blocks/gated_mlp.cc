#include "learn/blocks/gated_mlp.h"

namespace millrace {

template <typename Factor>
LabGatedMlp<Factor>::LabGatedMlp(HiddenActivation activation, LabTensor gate_up, LabTensor down)
    : activation_(activation), gate_up_(std::move(gate_up)), down_(std::move(down)) {}

template <typename Factor>
void LabGatedMlp<Factor>::reserve(LabMlpRows<Factor>& rows, int64_t count) const {
  grow(rows.in, count * gate_up_.inputs());
  grow(rows.gate_up, count * gate_up_.outputs());
  grow(rows.hidden, count * down_.inputs());
}

template <typename Factor>
void LabGatedMlp<Factor>::forward(LabWorkspace<Factor>& work, LabMlpRows<Factor>& rows, LabChunk chunk,
                                  float* out) const {
  const int64_t hidden = down_.inputs(), from = chunk.row();
  const auto activate = activation_ == HiddenActivation::silu ? work.kernels.silu : work.kernels.relu;
  float pair[2 * kLabChunk * kLabPanel];
  for (int64_t column = 0; column < hidden; column += kLabPanel) {  // so that gate and up stay in the first cache
    float* to = pair;
    for (const int64_t at : {column, hidden + column}) {
      gate_up_.forward_panel(work, in(rows, from), at, to);
      for (int64_t r = 0; r < kLabChunk; ++r)
        work.kernels.round(to + r * kLabPanel, rows.gate_up.data() + (from + r) * 2 * hidden + at, kLabPanel);
      to += kLabChunk * kLabPanel;
    }
    for (int64_t r = 0; r < kLabChunk; ++r)
      activate(pair + r * kLabPanel, pair + (kLabChunk + r) * kLabPanel, kLabPanel,
               rows.hidden.data() + (from + r) * hidden + column);
  }
  down_.forward(work, rows.hidden.data() + from * hidden, out);
}

template <typename Factor>
void LabGatedMlp<Factor>::backward(LabWorkspace<Factor>& work, const LabMlpRows<Factor>& rows, LabChunk chunk,
                                   LabChunk place, const float* d_out, float* d_in, LabFactors<Factor>& down_factors,
                                   LabFactors<Factor>& gate_up_factors) const {
  const int64_t hidden = down_.inputs(), from = chunk.row();
  LabBuffers<Factor>& buffers = work.buffers(chunk.worker);
  Factor *d_rows = buffers.d_out.data(), *d_gate_up = buffers.d_inner.data();
  float* d_hidden = buffers.inner.data();
  work.kernels.round(d_out, d_rows, kLabChunk * down_.outputs());
  down_.keep(work, d_rows, rows.hidden.data() + from * hidden, place, down_factors);
  down_.backward(work, d_rows, d_hidden);
  const auto back = activation_ == HiddenActivation::silu ? work.kernels.silu_backward : work.kernels.relu_backward;
  for (int64_t r = 0; r < kLabChunk; ++r) {
    const Factor* gate = rows.gate_up.data() + (from + r) * 2 * hidden;
    Factor* d_gate = d_gate_up + r * 2 * hidden;
    back(gate, gate + hidden, d_hidden + r * hidden, hidden, d_gate, d_gate + hidden);
  }
  gate_up_.keep(work, d_gate_up, rows.in.data() + from * gate_up_.inputs(), place, gate_up_factors);
  gate_up_.backward(work, d_gate_up, d_in);
}

template class LabGatedMlp<Bf16>;
template class LabGatedMlp<float>;

}  // namespace millrace
