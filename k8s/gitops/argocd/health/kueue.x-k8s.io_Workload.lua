-- Health of a Kueue Workload for Argo CD, which shows it below the Job that it stands for. Conditions say more than one
-- thing at a time, so the strongest decides: finished, then switched off, then running, then waiting.
local hs = {status = "Progressing", message = "waits for quota"}
local found = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    found[condition.type] = condition
  end
end
local function holds(name)
  return found[name] ~= nil and found[name].status == "True"
end
if holds("Finished") then
  -- how it ended is the condition's reason
  if found.Finished.reason == "Failed" then
    hs.status = "Degraded"
  else
    hs.status = "Healthy"
  end
  hs.message = found.Finished.message or ""
  return hs
end
if obj.spec ~= nil and obj.spec.active == false then
  hs.status = "Suspended"
  hs.message = "switched off (spec.active is false)"
  return hs
end
if holds("Admitted") then
  hs.message = "admitted"
  return hs
end
if holds("Evicted") then
  hs.message = "evicted, waits again: " .. (found.Evicted.message or "")
  return hs
end
if found.QuotaReserved ~= nil then
  hs.message = found.QuotaReserved.message or hs.message
end
return hs
