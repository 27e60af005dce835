package meter

import (
	"slices"
	"strings"
)

// overflowJob is where the traffic of the jobs beyond maxJobs is counted.
const overflowJob = "other"

// Job returns the counters of a job and makes them at the first call. It locks
// and searches: ask once when the job is built, not per request. The same name
// has the same counters for the life of the process, whatever is reloaded.
func (m *Meters) Job(name string) *Job {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, found := m.find(name)
	if !found && len(m.jobs) >= maxJobs {
		name = overflowJob
		at, found = m.find(name)
	}
	if !found {
		m.jobs = slices.Insert(m.jobs, at, &Job{Name: name})
	}
	return m.jobs[at]
}

// Jobs lists the jobs that exist, ordered by name.
func (m *Meters) Jobs() []*Job {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.jobs)
}

func (m *Meters) find(name string) (int, bool) {
	return slices.BinarySearchFunc(m.jobs, name, func(j *Job, name string) int {
		return strings.Compare(j.Name, name)
	})
}
