package trial

import (
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
)

// progress makes events of a slot's ticks: their counts are of the slot so far.
func (t *trial) progress(arm, workload string) func(load.Tick) {
	var requests, failed uint64
	return func(k load.Tick) {
		requests += k.Requests
		failed += k.Errors.Sum()
		t.emit(record.Event{
			Kind: record.EventTick, Arm: arm, Workload: workload,
			Rate: k.Rate, P50: k.P50, P90: k.P90, P99: k.P99, Requests: requests, Errors: failed,
			GeneratorCPU: share(k.CPU, k.Length),
		})
	}
}

func sampleEvent(s record.Sample, got finding) record.Event {
	e := record.Event{
		Kind: record.EventSample, Arm: s.Arm, Workload: s.Workload,
		Rate: s.Values["requests_per_second"], Requests: got.slot.Requests, Errors: uint64(s.Values["errors"]),
		TargetCPU: got.targetCPU,
	}
	if l := got.load; l != nil {
		e.P50, e.P90, e.P99 = l.Latency.Quantile(0.5), l.Latency.Quantile(0.9), l.Latency.Quantile(0.99)
		e.GeneratorCPU = share(l.CPU, l.Took)
	}
	return e
}

func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
