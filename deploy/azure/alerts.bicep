// Alert rules over Application Insights: those of deploy/prometheus/rules.yml under the same names, for
// who has no Prometheus; docs/alerts.md says what to do about each. az deployment group create --template-file deploy/azure/alerts.bicep
//   --parameters appInsightsId=… actionGroupId=…
//
// They need the metrics once a minute, which is the default (OTEL_METRIC_EXPORT_INTERVAL). A rule ends up to its window after the cure.
//
// Not here: PushleaseRestarts and PushleaseBacklogHidden, for which Application Insights does not keep enough. What a process counts before
// its first export, a minute after its start, is missing from the rules on counters.
@description('Resource id of the Application Insights component')
param appInsightsId string
@description('Resource id of the action group that is told')
param actionGroupId string
param location string = resourceGroup().location

// The values of a metric within the window.
func metric(name string) string => 'customMetrics | where name == "${name}" | extend queue = tostring(customDimensions["queue"]), webhook = tostring(customDimensions["webhook"]), check = tostring(customDimensions["check"])'

// What each series of a counter has risen by within the window, step by step: after a restart it begins at 0.
func rises(name string) string => 'customMetrics | where name == "${name}" | extend queue = tostring(customDimensions["queue"]), webhook = tostring(customDimensions["webhook"]), result = tostring(customDimensions["result"]), reason = tostring(customDimensions["reason"]), kind = tostring(customDimensions["kind"]), status = tostring(customDimensions["status"]), route = tostring(customDimensions["route"]), method = tostring(customDimensions["method"]), action = tostring(customDimensions["action"]) | extend series = strcat(cloud_RoleInstance, " ", queue, " ", webhook, " ", result, " ", reason, " ", kind, " ", status, " ", route, " ", method, " ", action) | sort by series asc, timestamp asc | extend risen = iff(prev(series) == series, iff(value >= prev(value), value - prev(value), value), 0.0)'

// Webhooks by the state that was told of them last.
var stopped = 'customMetrics | where name == "pushlease.webhook.stopped" | extend queue = tostring(customDimensions["queue"]), webhook = tostring(customDimensions["webhook"]), state = tostring(customDimensions["state"]), why = tostring(customDimensions["why"]) | summarize arg_max(timestamp, state, why) by queue, webhook, one = iff(webhook == "other", strcat(state, " ", why), "")'

var rules = [
  {
    name: 'pushlease-absent'
    severity: 1
    window: 'PT10M'
    description: 'No instance of pushlease has told of itself for ten minutes.'
    query: 'customMetrics | where name == "pushlease.build.info" | summarize n = count() | where n == 0'
  }
  {
    name: 'pushlease-not-ready'
    severity: 1
    window: 'PT10M'
    description: 'An instance was not ready for ten minutes: its /readyz says why. The last word of one that stops is no alert.'
    query: '${metric('pushlease.ready')} | summarize v = max(value), n = count() by cloud_RoleInstance | where v == 0 and n >= 5'
  }
  {
    name: 'pushlease-publish-fails'
    severity: 1
    window: 'PT1H'
    description: 'More than 10 % of the publishes of the hour, and at least 3, were answered with 5xx.'
    query: '${rises('pushlease.api.requests')} | where route == "/api/v1/queues/{queue}/messages" and method == "POST" and status in ("2xx", "5xx") | summarize failed = sumif(risen, status == "5xx"), published = sum(risen) | where failed >= 3 and failed > published * 0.1'
  }
  {
    name: 'pushlease-storage-tampered'
    severity: 1
    window: 'PT10M'
    description: 'Another program has dropped a table, or deleted or damaged the registration of a webhook: /readyz says which.'
    query: '${metric('pushlease.checks.failing')} | where check in ("registrations", "tables") and value > 0 | summarize v = max(value) by check'
  }
  {
    name: 'pushlease-degraded'
    severity: 2
    window: 'PT10M'
    description: 'A check of /readyz has failed for ten minutes: it says why.'
    query: '${metric('pushlease.checks.failing')} | where check !in ("registrations", "tables", "clock", "draining", "storage", "webhooks") | summarize v = max(value) by check, bin(timestamp, 1m) | summarize failing = countif(v > 0), n = count() by check | where n >= 5 and failing == n'
  }
  {
    name: 'pushlease-receive-fails'
    severity: 1
    window: 'PT10M'
    description: 'Storage has not answered the receives of an instance for more than 5 minutes beyond its own pauses.'
    query: 'customMetrics | where name in ("pushlease.poll.age", "pushlease.poll.pause") | extend queue = tostring(customDimensions["queue"]) | summarize (a, age) = arg_max(iff(name == "pushlease.poll.age", timestamp, datetime(2000-01-01)), value), (b, pause) = arg_max(iff(name == "pushlease.poll.pause", timestamp, datetime(2000-01-01)), value) by cloud_RoleInstance, queue | where a > ago(8m) and b > ago(8m) and age - pause > 300'
  }
  {
    name: 'pushlease-backlog'
    severity: 2
    window: 'PT10M'
    description: 'The oldest message that waits for a receive was older than 15 minutes, for ten minutes.'
    query: '${metric('pushlease.queue.oldest.age')} | summarize v = max(value) by queue, bin(timestamp, 1m) | summarize v = min(v), n = count() by queue | where v > 900 and n >= 5'
  }
  {
    name: 'pushlease-storage-throttled'
    severity: 2
    window: 'PT10M'
    description: 'Azure Storage has refused requests in at least five of ten minutes, because it was over a limit of its own.'
    query: '${metric('pushlease.storage.throttled')} | extend service = tostring(customDimensions["service"]) | summarize v = max(value) by cloud_RoleInstance, service, bin(timestamp, 1m) | sort by cloud_RoleInstance asc, service asc, timestamp asc | extend more = prev(cloud_RoleInstance) == cloud_RoleInstance and prev(service) == service and v > prev(v) | summarize n = countif(more) by cloud_RoleInstance, service | where n >= 5'
  }
  {
    name: 'pushlease-clock-differs'
    severity: 2
    window: 'PT10M'
    description: 'A clock differs from that of storage by more than half a minute.'
    query: '${metric('pushlease.clock.ahead')} | summarize v = avg(value) by cloud_RoleInstance | where abs(v) > 30'
  }
  {
    name: 'pushlease-signature-ends'
    severity: 2
    window: 'PT10M'
    description: 'The shared access signature of the storage ends within a week.'
    query: '${metric('pushlease.storage.signature.left')} | summarize v = min(value) | where v < 7 * 86400'
  }
  {
    name: 'pushlease-signature-ends-today'
    severity: 1
    window: 'PT10M'
    description: 'The shared access signature of the storage ends within a day.'
    query: '${metric('pushlease.storage.signature.left')} | summarize v = min(value) | where v < 86400'
  }
  {
    name: 'pushlease-certificate-ends'
    severity: 2
    window: 'PT10M'
    description: 'The client certificate of a webhook ends within 14 days.'
    query: '${metric('pushlease.webhook.certificate.left')} | summarize v = min(value) by webhook | where v < 14 * 86400'
  }
  {
    name: 'pushlease-duplicates'
    severity: 2
    window: 'PT1H'
    description: 'More than 5 % of the messages of a queue, and at least 20, came back after their delivery.'
    query: '${rises('pushlease.messages.duplicate')} | where kind == "redelivery" | summarize again = sum(risen) by queue | join kind=inner (${rises('pushlease.messages.received')} | summarize received = sum(risen) by queue) on queue | where again >= 20 and again > received * 0.05'
  }
  {
    name: 'pushlease-deletes-fail'
    severity: 2
    window: 'PT1H'
    description: 'More than 2 % of the deletions of a queue, and at least 5, failed.'
    query: '${rises('pushlease.messages.deleted')} | summarize failed = sumif(risen, result in ("failed", "lease_lost")), total = sumif(risen, result != "unverified") by queue | where failed >= 5 and failed > total * 0.02'
  }
  {
    name: 'pushlease-deletes-unverified'
    severity: 2
    window: 'PT1H'
    description: 'More than 10 messages came back although their delivery was recorded.'
    query: '${rises('pushlease.messages.deleted')} | where result == "unverified" | summarize v = sum(risen) by queue | where v > 10'
  }
  {
    name: 'pushlease-lease-too-short'
    severity: 2
    window: 'PT1H'
    description: 'More than 10 messages in an hour took more than 80 % of their lease.'
    query: '${rises('pushlease.lease.at_risk')} | summarize v = sum(risen) by queue | where v > 10'
  }
  {
    name: 'pushlease-dead-lettered'
    severity: 3
    window: 'PT1H'
    description: 'There were dead letters within the hour.'
    query: '${rises('pushlease.messages.deadlettered')} | summarize v = sum(risen) by queue | where v > 0'
  }
  {
    name: 'pushlease-messages-expire'
    severity: 2
    window: 'PT1H'
    description: 'Messages expired before they were delivered.'
    query: '${rises('pushlease.messages.expired')} | summarize v = sum(risen) by queue | where v > 0'
  }
  {
    name: 'pushlease-messages-gone'
    severity: 2
    window: 'P1D'
    description: 'Messages have gone without an outcome.'
    query: '${rises('pushlease.records.unfinished')} | summarize v = sum(risen) by queue | where v > 0'
  }
  {
    name: 'pushlease-internal-fault'
    severity: 2
    window: 'PT1H'
    description: 'pushlease could not handle messages; they come back.'
    query: '${rises('pushlease.messages.settled')} | where reason == "InternalFault" | summarize v = sum(risen) by queue | where v > 0'
  }
  {
    name: 'pushlease-dead-letters'
    severity: 2
    window: 'PT10M'
    description: 'More than 100 dead letters wait.'
    query: '${metric('pushlease.deadletters.waiting')} | summarize v = max(value) by queue | where v > 100'
  }
  {
    name: 'pushlease-many-dead-letters'
    severity: 1
    window: 'PT10M'
    description: 'More than 1,000 dead letters wait.'
    query: '${metric('pushlease.deadletters.waiting')} | summarize v = max(value) by queue | where v > 1000'
  }
  {
    name: 'pushlease-dead-letter-share'
    severity: 1
    window: 'PT1H'
    description: 'More than 10 % of the messages that were finished with, 20 at least, became dead letters.'
    query: '${rises('pushlease.messages.finished')} | summarize dead = sumif(risen, result == "dead_lettered"), total = sum(risen) by queue | where total >= 20 and dead > total * 0.1'
  }
  {
    name: 'pushlease-dead-letters-expire'
    severity: 3
    window: 'P1D'
    description: 'Dead letters were deleted by age, without a replay.'
    query: '${rises('pushlease.deadletters.expired')} | where status != "replayed" | summarize v = sum(risen) by queue | where v > 0'
  }
  {
    name: 'pushlease-unmatched'
    severity: 3
    window: 'PT1H'
    description: 'No webhook takes some messages: no filter matches them.'
    query: '${rises('pushlease.messages.unmatched')} | summarize v = sum(risen) by queue | where v > 0'
  }
  {
    name: 'pushlease-blocked-address'
    severity: 2
    window: 'PT1H'
    description: 'A webhook resolves to a forbidden address: a mistake, or an attack.'
    query: '${rises('pushlease.webhook.blocked')} | summarize v = sum(risen) by queue, webhook | where v > 0'
  }
  {
    name: 'pushlease-webhook-failing'
    severity: 2
    window: 'PT30M'
    description: 'Nothing but a probe now and then was sent to a webhook for 15 minutes.'
    query: 'customMetrics | where name == "pushlease.webhook.stopped" | where tostring(customDimensions["state"]) in ("failing", "probing") | summarize minutes = dcount(bin(timestamp, 1m)), newest = max(timestamp) by queue = tostring(customDimensions["queue"]), webhook = tostring(customDimensions["webhook"]) | where minutes >= 14 and newest > ago(8m)'
  }
  {
    name: 'pushlease-webhook-without-token'
    severity: 2
    window: 'PT30M'
    description: 'No token can be had for a webhook; its messages wait.'
    query: 'customMetrics | where name == "pushlease.webhook.without_token" | summarize minutes = dcount(bin(timestamp, 1m)), newest = max(timestamp) by queue = tostring(customDimensions["queue"]), webhook = tostring(customDimensions["webhook"]) | where minutes >= 5 and newest > ago(8m)'
  }
  {
    name: 'pushlease-webhook-disabled'
    severity: 1
    window: 'PT10M'
    description: 'A webhook was disabled by its own answers; its messages wait.'
    query: '${stopped} | where state == "disabled" and why != "operator"'
  }
  {
    name: 'pushlease-webhook-stays-disabled'
    severity: 2
    window: 'P1D'
    description: 'A webhook has been disabled for a day.'
    query: 'customMetrics | where name == "pushlease.webhook.stopped" | where tostring(customDimensions["state"]) == "disabled" | summarize hours = dcount(bin(timestamp, 1h)) by queue = tostring(customDimensions["queue"]), webhook = tostring(customDimensions["webhook"]) | where hours >= 24'
  }
  {
    name: 'pushlease-records-lost'
    severity: 2
    window: 'PT1H'
    description: 'Records had to be dropped from memory; timelines have gaps.'
    query: '${rises('pushlease.records.lost')} | summarize v = sum(risen) | where v > 0'
  }
]

resource alerts 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = [for rule in rules: {
  name: rule.name
  location: location
  properties: {
    description: rule.description
    severity: rule.severity
    enabled: true
    scopes: [appInsightsId]
    evaluationFrequency: rule.window == 'P1D' ? 'PT1H' : 'PT5M'
    windowSize: rule.window
    criteria: {
      allOf: [
        {
          query: rule.query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
        }
      ]
    }
    actions: { actionGroups: [actionGroupId] }
  }
}]
