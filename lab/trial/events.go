package trial

import (
	"time"

	"millrace/lab/load"
	"millrace/lab/result"
)

// progress makes events of a slot's ticks: their counts are of the slot so far.
func (t *trial) progress(arm, workload string) func(load.Tick) {
	var requests, failed uint64
	return func(k load.Tick) {
		requests += k.Requests
		failed += k.Errors
		t.emit(result.Event{
			Kind: result.EventTick, Arm: arm, Workload: workload,
			Rate: k.Rate, P50: k.P50, P90: k.P90, P99: k.P99, Requests: requests, Errors: failed,
			GeneratorCPU: share(k.CPU, k.Length),
		})
	}
}

func sampleEvent(s result.Sample, got *load.Result, targetCPU float64) result.Event {
	return result.Event{
		Kind: result.EventSample, Arm: s.Arm, Workload: s.Workload,
		Rate: s.Values["requests_per_second"], Requests: got.Requests, Errors: got.Errors.Sum(),
		P50: got.Latency.Quantile(0.5), P90: got.Latency.Quantile(0.9), P99: got.Latency.Quantile(0.99),
		TargetCPU:    targetCPU,
		GeneratorCPU: share(got.CPU, got.Took),
	}
}

func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
