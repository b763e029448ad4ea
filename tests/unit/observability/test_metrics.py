"""What is read at a scrape, and from whom."""

from headgate.observability.metrics import AgentMemory, new_registry


def test_an_agents_memory_is_asked_for_at_each_scrape_by_process() -> None:
    registry = new_registry()
    sizes = {"driver": 5, "jvm": 0, "workers": 0}
    AgentMemory(registry, lambda: sizes)
    assert registry.get_sample_value("headgate_agent_memory_bytes", {"process": "driver"}) == 5
    sizes["jvm"] = 7
    assert registry.get_sample_value("headgate_agent_memory_bytes", {"process": "jvm"}) == 7
