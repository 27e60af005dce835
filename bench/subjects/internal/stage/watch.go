package stage

import (
	"errors"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
)

// watchEvery is how often memory is read: not a whole second, so that the last
// reading is not at the moment when wrk closes its connections.
const watchEvery = 900 * time.Millisecond

// Watch reads a server's memory every so often until it is stopped.
type Watch struct {
	quit chan struct{}
	done chan watched
}

type watched struct {
	readings []record.Reading
	err      error
}

// WatchMemory starts the watch; Stop ends it. done says how many requests have
// been answered so far; nil where that is not of interest.
func WatchMemory(server *arm.Running, done func() uint64) Watch {
	w := Watch{make(chan struct{}), make(chan watched, 1)}
	began := time.Now()
	go func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		var all watched
		for {
			select {
			case <-w.quit:
				w.done <- all
				return
			case <-ticker.C:
			}
			held, err := server.Memory()
			if err != nil {
				all.err = errors.Join(all.err, err)
				<-w.quit
				w.done <- all
				return
			}
			r := record.Reading{At: time.Since(began), Memory: held}
			if done != nil {
				r.Done = done()
			}
			all.readings = append(all.readings, r)
		}
	}()
	return w
}

// Stop ends the watch and is what it has read: nothing of a time too short.
func (w Watch) Stop() ([]record.Reading, error) {
	close(w.quit)
	all := <-w.done
	return all.readings, all.err
}
