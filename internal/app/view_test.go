package app

import (
	"slices"
	"testing"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/dispatcher"
)

func TestTheAPIKnowsEveryFlowState(t *testing.T) {
	var theirs []api.FlowState
	for _, s := range dispatcher.FlowStates() {
		theirs = append(theirs, api.FlowState(s))
	}
	if !slices.Equal(theirs, api.FlowStates()) {
		t.Errorf("the dispatcher has %v, the API %v", theirs, api.FlowStates())
	}
}
