// The page's style sheet. Colours are named once; the dark scheme replaces only them.
#pragma once

#include <string_view>

namespace yard::report {

inline constexpr std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5c6675; --line: #dfe3e9; --paper: #f6f7f9;
  --card: #ffffff; --train: #2563c9; --held: #d97706; --good: #15925a; --bad: #c8312f; --wait: #8b5cf6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #99a3b3; --line: #313845;
  --paper: #14171d; --card: #1c2029; --train: #6ea8ff; --held: #f5b14c; --good: #4ccb8c; --bad: #ff7b74;
  --wait: #b79bff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 19px; margin: 40px 0 12px; }
.sub { color: var(--soft); margin: 2px 0 20px; }
.state { font-size: 13px; font-weight: 600; padding: 2px 10px; border-radius: 99px; margin-left: 10px;
  vertical-align: 4px; color: var(--soft); border: 1px solid currentColor; white-space: nowrap; }
.state.succeeded { color: var(--good); } .state.failed { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 14px; } .tile b { display: block; font-size: 19px; white-space: nowrap; font-weight: 600;
  font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); font-size: 13px; }
.card { padding: 16px 18px; margin: 0 0 14px; } .card h3 { margin: 0 0 10px; font-size: 15px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); gap: 14px 12px; }
.pictures figure { margin: 0; } .pictures img { width: 100%; display: block; border-radius: 8px;
  background: #fff; border: 1px solid var(--line); }
.pictures figcaption { font-size: 12px; line-height: 1.35; color: var(--soft); margin-top: 4px;
  overflow-wrap: anywhere; }
.pictures.small { grid-template-columns: repeat(auto-fill, minmax(56px, 1fr)); gap: 6px; margin-bottom: 14px; }
.pictures.whole { display: block; } .pictures.whole img { width: auto; max-width: 100%; }
details { margin-top: 14px; } summary { cursor: pointer; color: var(--soft); font-size: 13px; }
details h4 { margin: 12px 0 6px; font-size: 13px; font-weight: 600; }
.charts { display: grid; gap: 14px; }
.chart { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px 6px; }
.chart svg { width: 100%; height: auto; display: block; }
.chart figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 4px 16px; font-size: 14px; }
.legend { display: flex; gap: 14px; color: var(--soft); font-size: 12px; align-items: center; }
.key::before { content: ""; display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 5px; vertical-align: 3px; background: currentColor; color: var(--c); }
svg text { font-size: 11px; fill: var(--soft); font-family: inherit; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
.train { --c: var(--train); } .held { --c: var(--held); } .wait { --c: var(--wait); } .comm { --c: var(--held); }
.series path { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; }
.series circle { fill: var(--c); } .series.faint path { stroke-width: 1; opacity: .28; }
.series.faint circle { opacity: .28; }
.marker line { stroke: var(--soft); stroke-dasharray: 3 4; } .marker.kill line { stroke: var(--bad); }
.marker.kill text { fill: var(--bad); }
.none { color: var(--soft); margin: 6px 0 12px; }
.bar { display: flex; height: 18px; border-radius: 6px; overflow: hidden; margin: 4px 0 14px; gap: 1px; }
.bar i { display: block; min-width: 2px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12px; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tfoot td { font-weight: 600; border-bottom: 0; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 8px; }
.event-bad { color: var(--bad); font-weight: 600; } .event-good { color: var(--good); font-weight: 600; }
td.text { overflow-wrap: anywhere; }
.l-productive { background: #15925a; } .l-startup { background: #7c8797; } .l-data { background: #8b5cf6; }
.l-comm { background: #d97706; } .l-checkpoint { background: #2563c9; } .l-lost { background: #c8312f; }
.l-evaluation { background: #0e9aa7; } .l-recovery { background: #e88a80; } .l-other { background: #b6bfcb; }
pre { font-size: 12px; overflow-x: auto; margin: 10px 0 0; } details.card { margin-top: 0; }
footer { color: var(--soft); font-size: 12px; margin-top: 40px; }
)css";

}  // namespace yard::report
