package content

import "bytes"

// gridEvent reads an event in the schema of Azure Event Grid, which is what that service
// sends by default: an object with the texts id, eventType, subject, eventTime and
// dataVersion, and topic where the service has set it. Filters know it; formats and
// deduplication do not, since it says its version and its source in other ways.
func gridEvent(document []byte) *Event {
	if len(document) == 0 || document[0] != '{' {
		return nil
	}
	var e Event
	var version string
	wanted := map[string]*string{"id": &e.ID, "eventType": &e.Type, "topic": &e.Source, "subject": &e.Subject, "eventTime": &e.Time, "dataVersion": &version}
	seen := map[string]bool{}
	for name, value := range members(document) {
		key, _ := Unquote(name)
		to := wanted[key]
		if to == nil {
			continue
		}
		text, ok := Unquote(value)
		if !ok && value[0] != 'n' || seen[key] {
			return nil // it could be read in two ways
		}
		*to, seen[key] = text, true
	}
	if e.ID == "" || e.Type == "" || e.Subject == "" || e.Time == "" || !seen["dataVersion"] {
		return nil
	}
	return &e
}

// mayHoldGridEvent sorts out most bodies at little cost.
func mayHoldGridEvent(body []byte) bool { return bytes.Contains(body, []byte(`"eventType"`)) }
